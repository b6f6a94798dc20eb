"""The end of a round.

rounds       group, average, outer step and votes; it returns whatever goes wrong
exchange     what every exchange takes and gives
roll_call    finds the group: those who have come to one coordinator, or to whom most go
gathering    at a coordinator: who has come, and the roll once it is called
roll         what each member brings, who ends a round together, and the last groups; signed
reduce       the exchange in which each member averages one share
allreduce    how it does: parts of the vector go out, and come back averaged
share        the exchange in which everybody fetches all contributions
group        who is in it, and who brings what
agreement    which contributions count: one list, agreed once, whoever dies meanwhile
session      one member's part in it, on the clock and over the network
reports      what members tell each other for it
pledge       what a member signs of an attempt to end a round, and proof that it signed twice
polls        collects the votes on a state, and asks the trainer for its own
offences     the proofs that this peer knows, kept and passed on
"""
