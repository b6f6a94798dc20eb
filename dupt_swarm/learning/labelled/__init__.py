"""Examples of a task, and pairs of texts: from tables to batches.

tables          CSV, JSON lines and Parquet, a row at a time
files           which files, and which of their columns
encoded         what all encoded examples have in common: split by hash, dealt out in batches
load            rows to labels and to encoded examples
examples        those of a task, cut into batches
pairs           sources and targets; batches of similar lengths
"""
