"""What the swarm agrees on, in plain CPU arithmetic; no network.

state           the replica state: anchor, outer buffers, round, tokens, electorate
first_state     the one of round 0
blob            an index of chunk hashes, and the chunks; its digest names the state
offered         files of text that a swarm offers, as blobs
storage         a replica state on disk
outer           outer optimizers: state and average contribution to the next state
next_state      the state that follows, computed part by part
pool            memory for its vectors, used again and again
contribution    what goes into a round, as a blob
replay          a round as a pure function: state, link and blobs to the next state
signed          messages that a peer signs, so that others may pass them on and anybody may check them
plain           reads JSON of any depth, and msgpack without extension types
draw            an order of peers that nobody chooses
electorate      who decides which state follows, whoever comes and goes: a part of the state
link            the words that decide which state follows, and the link that they make
signed_words    the same words as they are signed, and links as they travel and are kept
proof           that a peer has signed what contradicts itself
chain_file      the chain on disk
ledger          who has given what, from those links
chain           all links since a state that is trusted, and which branch to follow where two part
aggregation/    which contributions count, for how much, and what becomes of them: the rules
codec/          how contributions and averages are encoded
"""
