"""What `dupt-peer join` shows while it runs.

screen          `Screen`, where an oracle's progress goes, and which of the two it is:
log               lines now and then, off a terminal
panel             a full view that renews itself, on a terminal
frame           the panel's content as text, from `facts`: a pure function of them and the size
header          its parts: who and what, and where the round stands
curves                     losses, drawn in braille
events                     the last things that happened, in words
facts           what the panel shows; plain data
history         what it remembers: losses since the start, bytes, the beginning of the round
words           numbers and states in words
demo            `dupt-peer demo`: all oracles at once
"""
