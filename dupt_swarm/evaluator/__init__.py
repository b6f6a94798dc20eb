"""An independent judge: measures each new state of a swarm, trains nothing.

evaluator       follows a swarm, measures and publishes
sample          what a state writes after a prompt
"""
