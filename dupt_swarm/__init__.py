"""Decentralized unsupervised pre-training: independent oracles train one GPT together."""
