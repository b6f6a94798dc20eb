"""Clocks.

hours           `--hours 22-07`: when an oracle may train
speed           units per second over the last ten seconds
"""
