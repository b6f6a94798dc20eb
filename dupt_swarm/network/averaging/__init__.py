"""The end of a round.

rounds          all-reduce, then the outer step; whatever goes wrong, it returns
round_counts    how rounds ended, for the record
averager        finds the group, under a key made of round and state, and averages in it
matchmaking     hivemind's matchmaking, which leaves out whoever sends nonsense
allreduce       butterfly all-reduce with screened parts and one average for all
parts           whose share each part of the vector is, our contribution to it, and its average
reducer         the share of the vector that this peer reduces
"""
