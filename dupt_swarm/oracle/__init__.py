"""An oracle: trainer + corpus + swarm.

oracle          `Oracle`, the loop of inner steps and rounds
pausing         by command, and outside its hours
status          how it is doing, for screen, log and record
"""
