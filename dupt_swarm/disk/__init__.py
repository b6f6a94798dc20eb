"""Files on this machine.

folders         the state folder: a sub-folder per swarm and role
files           atomic writes
home            paths with a `~`
locks           which process has a file or folder for itself
anonymous       files without a name, by which processes share memory
offered         text that a swarm offers, and which of it makes room for other
limit           how much disk a folder takes, and how much it may
"""
