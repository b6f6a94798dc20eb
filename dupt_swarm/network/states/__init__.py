"""Replica states, and how they travel: as blobs, chunk by chunk, each checked by its hash.

store           our own state: begins the next one, fetches newer ones
hello           what a peer tells anyone who asks
exchange        serves blobs and fetches them
serving         which of them, and to how many peers at once
offered         text that the swarm offers, on this machine's disk: served, and more of it fetched
download        one blob from all donors at once
replaying       keeps the last rounds, and computes missed ones again instead of fetching a state
"""
