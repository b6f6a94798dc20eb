"""Differential privacy of what an oracle hands out.

mechanism       what becomes of a contribution before it is encoded: nothing, or clipping and noise
gaussian        clipping and Gaussian noise
scale           how large contributions may be, as far as the manifest tells
accountant      ε of all contributions that were made
ledger          how many were made, on disk
"""
