"""How a node comes in.

connection      what every node has that is connected, observers included
handshake       who are the initial peers, which manifest, which tokenizer
entry           reaches somebody, enters the DHT, gets the first state
preflight       looks around without joining
"""
