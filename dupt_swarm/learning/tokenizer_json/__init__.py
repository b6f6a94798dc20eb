"""tokenizer.json of whatever model: taken as it is, or refused by name.

opening    from bytes that a stranger wrote to a tokenizer that is understood, tried out, and used
refusals   why a tokenizer cannot be used, or text does not survive it
spelling   which bytes of text a token stands for: four ways to write them in a vocabulary
"""
