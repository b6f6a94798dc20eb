"""What `dupt-peer join`, the demo and `dupt-model finetune` show while they run.

progress        bars and tables of what takes long: a download, a fine-tuning
screen          `Screen`, where an oracle's progress goes: to a panel on a terminal, else to a log
log             lines now and then
panel           a full view that renews itself
frame           the panel's lines: a pure function of facts and size
curves          its middle: losses, drawn in braille
events          its lower part: the last things that happened, in words
facts           what panel and log show; plain data, and the words for it
history         what it remembers: losses since the start, bytes, when the round began
words           numbers and states in words
demo            all oracles of `dupt-peer demo`, and a summary
"""
