"""Inner steps and rounds.

collaborative   `CollaborativeOptimizer`
"""
