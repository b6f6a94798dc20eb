"""A CUDA device that computes nothing: on PyTorch's CPU build, shapes, copies and memory as on a card.

guard.cpp       what PyTorch asks a CUDA device for, answered without a driver
library         builds it
meter           counts operators, copies and bytes; loads the library before PyTorch
scenes          what an oracle does with its device, measured; a program
"""
