"""The trainer's side of its node: what a process needs to talk to a node process; no hivemind.

node            `Node`: commands with time limits, events, a new process when one fails
link            one node process and the pipe to it
commands        what the trainer tells its node to do, each with the type of its reply
messages        what the node answers, and tells unasked
heard           the latest of each kind of thing that it told
memory          the memory that trainer and node share: contribution and replica state
vectors         the vectors of replica states in it
run_folder      the node's folder of sockets, and what a power cut left of others
record          what a peer publishes about itself: each field once, with its metrics
view            all live peers, and what their records add up to
progress        how full the round is
reasons         why rounds fail, and contributions and records are refused: the words of metrics
addresses       multiaddrs: what they tell, and which of them are worth telling
join_addresses  the addresses to join a swarm by
address_book    peers met before, on disk
"""
