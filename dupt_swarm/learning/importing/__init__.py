"""A model from a folder in Hugging Face's format, read without `transformers` and without a network.

hugging_face   the whole: shape, tokenizer, weights
weights        parameters from safetensors files, checked before any is read
files          what may be opened in a folder that somebody else made
"""
