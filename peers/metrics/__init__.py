"""The metrics that a peer serves of itself."""
