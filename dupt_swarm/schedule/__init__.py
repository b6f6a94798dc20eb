"""Learning rates over the rounds, bit-identical on every machine.

learning_rate   of the outer step
reproducible    cosine and power from operations that IEEE 754 rounds exactly
"""
