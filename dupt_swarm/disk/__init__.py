"""Files on this machine.

folders         the state folder: a sub-folder per swarm and role
files           atomic writes
limit           how much disk a folder takes, and how much it may
"""
