"""A voter that turns against the others: the real code on the real wire, with one thing changed.

cluster      a driven swarm with one oracle that attacks when the test says so
orders       what that oracle shall do now, in a file, as its node is a process of its own
voting       what it does with its votes
coordinating what it does when it coordinates
sharing      what it does with its contribution
hooks/       has Python load all that in its node
"""
