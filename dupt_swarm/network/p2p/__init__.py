"""The connection to other peers.

daemon          dialling by ``p2pd``, noticing that it is gone
rpc             how methods are declared that peers call, and why a call may come to nothing
guard           the gate that every call passes: how long it is, who calls, what the answer costs
streams         their frames, measured before they are read, and how they end
limits          who may call, and how much each may ask
pauses          when a peer that failed us is asked again
dht_messages    messages of the DHT: neighbours at their places, and nothing that is stored
hivemind_internals  the private names of hivemind that we use
bandwidth       token buckets that keep to the limits of upload and download
"""
