"""The trainer's side of its node: what a process needs to talk to a node process; no hivemind.

node          `Node`: commands with time limits, events, a new process when one fails
link          one node process, the pipe to it, and its folder of sockets
commands      what the trainer tells its node to do, each with the type of its reply
messages      what the node answers, and tells unasked
heard         the latest of each kind of thing that it told
memory        the memory that trainer and node share: contribution and replica state
vectors       the vectors of replica states in it
record        what a peer publishes about itself: each field once, with its metrics
view          all live peers, and what their records add up to
progress      how full the round is
reasons       why rounds fail, and contributions and records are refused: the words of metrics
addresses     multiaddrs: what they tell, which are worth telling, and by which a swarm is joined
address_book  peers met before, on disk
"""
