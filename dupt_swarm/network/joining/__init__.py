"""How a node joins.

connection      what every node has that is connected, observers included
handshake       who the initial peers are, which manifest and tokenizer they share
entry           reaches a peer, enters the DHT, gets the first state: which one the initial peers tell
preflight       checks ports and initial peers without joining
"""
