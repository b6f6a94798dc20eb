"""Everything hivemind: DHT and identity, records, all-reduce, blob exchange, the node process.

Only the node process imports hivemind; the modules that a trainer needs (`client`, `memory`, `view`)
do not.
"""
