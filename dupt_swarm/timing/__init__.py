"""Clocks.

hours           `--hours 22-07`
speed           units per second over the last ten seconds
"""
