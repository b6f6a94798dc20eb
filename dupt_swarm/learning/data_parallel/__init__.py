"""Several devices of one machine that compute one oracle's steps, each on a part of the examples.

workers   the processes besides this one's device, as the trainer sees them
worker    one such process: it has the model, and nothing of the optimizer
orders    what they tell each other
area      memory that they share: parameters one way, gradients the other
"""
