"""Inside the node process: everything hivemind. Nothing outside this folder imports it.

process         the program: commands from the pipe, heartbeats, the end
log_file        node.log: one line per event
task_group      tasks that end together, and waiting for an event, but not for long
host            that process as the node sees it, and background work
service         `NodeService`: carries out the commands, also those of a node that only looks
participant     `Participant`: a node that holds the state, averages and serves
start_participant  how it comes about
pulling         fetching a state for an observer
watching        who has given what, by the chain of rounds, for an observer
auditing        computing past rounds again, likewise, and checking who has signed them
joining/        connection (what every node has), handshake (manifest, tokenizer), entry, preflight
admission       which peers the swarm admits: all, or those with an invitation
p2p/            the libp2p daemon, how many bytes pass it and how fast they may
members/        who is there: identity, records and how they spread, membership, liveness
states/         replica states: the store of our own, exchange of blobs with others, missed rounds
rounds/         how rounds end: one decision for each state, the two exchanges, which link to follow
reach/          whether others can dial this peer, and relays where they cannot
"""
