"""What the swarm agrees on, in plain CPU arithmetic; no network.

state           the replica state: anchor, outer buffers, round, tokens
blob            an index of chunk hashes, and the chunks; its digest names the state
storage         a replica state on disk
limits          the largest state that a joiner accepts
aggregation     screening and averaging of contributions
codec/          how contributions and averages are encoded
outer/          outer optimizers: state and average contribution to the next state
"""
