"""tokenizer.json of whatever model: taken as it is, or refused by name.

opening    from bytes that a stranger wrote to a tokenizer of the library's; its panics become errors
ours       what `train_tokenizer` makes
encoding   text to ids; what a tokenizer's template puts before a text
refusals   why a tokenizer cannot be used
spelling   which bytes of text a token stands for: three ways to write them in a vocabulary
trial      whether its parts go together
losses     why text does not survive a tokenizer
going_on   the same tokenizer for text that does not begin a document
"""
