"""Labelled examples of a task: from tables to batches.

tables          CSV, JSON lines and Parquet, a row at a time
files           which files, and which of their columns
load            rows to labels and to encoded examples
examples        encoded examples, cut into batches, split by hash, dealt out in batches
"""
