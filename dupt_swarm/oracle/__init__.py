"""An oracle: trainer + corpus + swarm.

oracle          `Oracle`, the loop of inner steps and rounds; its trainer put together
held_out        what is measured on held-out text, and how often
judge           whether to accept the state that a round leads to
commands        run, pause, finish, stop: by its owner, by `--hours`, and for others who need the machine
idleness        whether others leave the machine alone
throttle        holds it back while its GPUs are too hot, or draw too much power
checkpoints     writing them, and going on from the newest
status          how it is doing and what it does at this moment, for screen, log and record
"""
