"""The end of a round.

rounds          all-reduce, then the outer step; whatever goes wrong, it returns
round_counts    how rounds ended, for the record
agreement       which contributions count: one list, agreed once, whoever dies meanwhile
averager        finds the group, under a key made of round and state, and averages in it
matchmaking     hivemind's matchmaking, which leaves out whoever sends nonsense
allreduce       butterfly all-reduce with screened parts and one average for all
reducer         the share of the vector that this peer reduces
"""
