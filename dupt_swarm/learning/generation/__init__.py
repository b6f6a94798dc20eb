"""A model continues a text, fills its gaps, or writes one for another.

sampling    which token comes next
generate    token ids, one at a time
text        text, in whole characters, up to a stop word
filling     what is likeliest in a gap of a text
beam        an encoder-decoder writes the target of a source
translate   texts for texts, many at once
overlap     chrF and BLEU of what was written
"""
