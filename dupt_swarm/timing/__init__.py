"""Clocks.

hours           when to train: 22-07
speed           units per second over the last ten seconds
"""
