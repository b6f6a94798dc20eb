"""How the owner reaches the peers that run on this machine.

owner           `dupt-peer pause`, `resume`, `finish` and `stop`
client          finds and asks them, and says whether one is well
socket          the control socket that a running peer serves
actions         what the commands do
"""
