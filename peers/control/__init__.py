"""A volunteer's control of the peers that run on this machine."""
