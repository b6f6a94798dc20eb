"""How the owner reaches the peers that run on this machine.

client          finds them, and sends commands
socket          the control socket that a running peer serves
actions         what the commands do
health          `dupt-peer status --health`
"""
