"""The models: each part is a choice in the manifest's `[model]`, and a small file that knows only itself.

transformer      what all models have in common: embeddings, stacks, first weights
gpt              the decoder: embedding, blocks, head, loss
bert             the encoder, which predicts masked tokens, and whether a text follows on another
encoder_decoder  the Transformer of 2017: a text is written by looking at another one
attention        of a text to itself or to another, and its cache; key and value heads may be shared
block            placement of the norms: `post`, `pre`, `parallel`
feed_forward     `gelu`, `gelu_erf`, `relu`, `swiglu`
norms            `layer`, `rms`
positions        `learned`, `sinusoidal`, `rotary`
dropout          cheap on a GPU, where the model is compiled
cross_entropy    the loss of a linear layer's logits in a third of the memory

Shapes: B sequences, T tokens each, C = width, D = C ÷ heads, V = vocabulary size.
"""
