"""What `dupt-peer check` looks at, before a peer joins.

machine         device, memory, disk, corpus
initial_peers   ports, addresses, clocks, versions, manifests
footprint       how much memory and disk the swarm's model takes, estimated
report          one line per check, and the exit code
"""
