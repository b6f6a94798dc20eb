"""Text that a swarm offers to oracles without a corpus: cut into shards, each named by its digest.

shard_list      which shards there are, and what is held out; the manifest has its digest
cutting         makes them of text, on the organiser's machine
stock           those that are on a volunteer's machine, and those that come next
"""
