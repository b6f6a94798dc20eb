"""The end of a round.

rounds          all-reduce, then the outer step; whatever goes wrong, it returns
round_counts    how rounds ended, for the record
averager        finds the group of the peers at one state, and averages in it
average         what every exchange takes and gives
roll_call       finds the group: those who have come to one coordinator
clock           the event loop's time
coordinators    whom members ask for the roll
search          what a member comes to know of coordinators meanwhile
gathering       at a coordinator: who has come, and the roll once it is called
roll            who ends a round together, signed
statement       what a member brings, signed
reduce/         the exchange in which each member averages one share
share           the exchange in which everybody gets all contributions
shelf           the contributions of the round that is being ended
collecting      fetches those of the others
group           who is in it, and who brings what
pledge          what a member signs of an attempt to end a round: votes and acceptances are its kinds
votes           what members sign of the state that a round leads to
polls           collects their votes
judgement       asks the trainer whether to vote for it
proof           two pledges of one member that contradict each other
offences        the proofs that this peer knows, also on disk
accusing        passes them on
evidence        whether a log entry is what its group signed
agreement       which contributions count: one list, agreed once, whoever dies meanwhile
session         one member's part in it, on the clock and over the network
reports         what members tell each other for it
ballots         its messages
accepting       what electors sign of the list
"""
