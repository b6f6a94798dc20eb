"""Inner steps and rounds.

collaborative   `CollaborativeOptimizer`
contribution    what becomes of an oracle's progress: sent, perhaps uncertain, in the state or given up
"""
