"""A model as a folder of files that other programs read, written without those programs.

export         the formats, our own among them, and writing a folder
learned        what is exported, and what a format does with it
gguf           one file for llama.cpp
hugging_face   for transformers, in the architecture that the model has, with its tokenizer
card           README.md: what it is and where it comes from
examples       code for the card
origin         where a model comes from
"""
