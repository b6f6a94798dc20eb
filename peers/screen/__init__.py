"""What `dupt-peer join`, the demo and `dupt-model finetune` show while they run.

progress        bars and tables of what takes long: a download, an evaluation, a fine-tuning
log             lines now and then; and `open_screen`: a panel on a terminal, else a log
panel           a full view that renews itself
frame           the panel's lines, with curves in braille: a pure function of facts and size
events          its lower part: the last things that happened, in words
facts           what panel and log show; plain data, and the words for it
history         what it remembers: losses since the start, bytes, when the round began
words           numbers and states in words
table           tables of `status`, `ledger` and the demo
demo            all oracles of `dupt-peer demo`, and a summary
"""
