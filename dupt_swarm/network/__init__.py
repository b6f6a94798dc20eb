"""Inside the node process: everything hivemind. Nothing outside this folder imports it.

process         the program: commands from the pipe, heartbeats, the end
service         `NodeService`: puts the rooms below together
joining/        handshake (manifest and tokenizer), entry (DHT and first state), preflight (`dupt-peer check`)
p2p/            the libp2p daemon, how many bytes pass it and how fast they may
members/        who is there: identity, records and their validator, membership, liveness, neighbours
states/         replica states: the store of our own, keeping it in sync, exchange of blobs with others
averaging/      the end of a round: matchmaking, all-reduce, the reducer of our share
reach/          whether others can dial this peer, and relays where they cannot
"""
