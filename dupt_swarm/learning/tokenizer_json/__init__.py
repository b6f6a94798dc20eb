"""tokenizer.json of whatever model: taken as it is, or refused by name.

opening    what the library makes of bytes that a stranger wrote, and of text
refusals   why a tokenizer cannot be used, or text does not survive it
spelling   which bytes of text a token stands for: four ways to write them in a vocabulary
"""
