"""What ``dupt-model eval`` measures. A file per kind of data.

report  what was found, for people and for programs
text    a text, with a decoder or an encoder
pairs   a table of pairs, with an encoder-decoder
"""
