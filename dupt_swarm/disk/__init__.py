"""Files on this machine.

folders         the state folder: a sub-folder per swarm and role
files           atomic writes
new_folder      a folder that is complete or absent
limit           how much disk a folder takes, and how much it may
"""
