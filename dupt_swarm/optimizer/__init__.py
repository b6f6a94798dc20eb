"""Inner steps and rounds.

collaborative   `CollaborativeOptimizer`; ends rounds in a thread beside the one that trains
due             when a round is to be ended, and with which peers
feedback        encodes contributions; what that loses is added to the next one
costs           for how long rounds hold the trainer up
contribution    what becomes of an oracle's progress: sent, perhaps uncertain, in the state or given up
"""
