"""Clocks.

hours           when an oracle may train, such as 22-07
speed           units per second over the last ten seconds
"""
