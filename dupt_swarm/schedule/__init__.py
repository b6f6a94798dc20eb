"""Learning rates over the rounds, bit-identical on every machine.

learning_rate   of inner and outer steps, from the manifest's schedule
decays          what becomes of a learning rate after its peak
growth          how many inner steps the first rounds have
reproducible    cosine and power from operations that IEEE 754 rounds exactly
"""
