"""Files on this machine.

folders         the state folder, one sub-folder per swarm
files           atomic writes
limit           `--max-disk`
"""
