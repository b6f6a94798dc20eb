"""Learning a task from labelled examples, on one machine (Radford et al. 2018, sections 3.2 and 4.1).

settings        how: epochs, learning rate, batch size
loop            epochs of training and validation; the best one counts
progress        goes on where a killed one stopped
"""
