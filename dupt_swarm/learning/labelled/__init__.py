"""Labelled examples of a task: from tables to batches.

files           which files, and which of their columns
tables/         CSV, JSON lines and Parquet: a file each
labels          which labels there are
load            rows to encoded examples
examples        encoded examples, cut into batches, split by hash
batches         shuffled examples, resumable
"""
