"""The decoder: each part is a choice in the manifest's `[model]`, and a small file that knows only itself.

attention       causal attention, and its cache; key and value heads may be shared by query heads
gpt             the whole: embedding, blocks, head, loss
block           placement of the norms: `post`, `pre`, `parallel`
feed_forward    `gelu`, `relu`, `swiglu`
norms           `layer`, `rms`
positions       `learned`, `sinusoidal`, `rotary`
cross_entropy   the loss of a linear layer's logits in a third of the memory

Shapes: B sequences, T tokens each, C = width, D = C ÷ heads, V = vocabulary size.
"""
