"""A model continues a text.

sampling   which token comes next
generate   token ids, one at a time
text       text, in whole characters, up to a stop word
"""
