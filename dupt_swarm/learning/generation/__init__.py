"""A model continues a text, or fills its gaps.

sampling   which token comes next
generate   token ids, one at a time
text       text, in whole characters, up to a stop word
filling    what is likeliest in a gap of a text
"""
