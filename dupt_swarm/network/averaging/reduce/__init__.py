"""The exchange in which each member averages one share, for members that trust one another.

reduce          the exchange
reducers        takes the parts that others send to be averaged
allreduce       butterfly all-reduce with screened parts and one average for all
parts           whose share each part of the vector is, our contribution to it, and its average
"""
