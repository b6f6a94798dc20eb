"""Whether others can dial this peer.

starting        starts the libp2p daemon
reachability    finds out, and decides how the daemon runs
dialback        "dial me back, please", and doing so for others
relays          public peers that relay for peers that nobody can dial
"""
