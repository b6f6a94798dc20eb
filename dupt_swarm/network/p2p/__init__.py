"""The connection to other peers.

daemon          starting ``p2pd``, dialling, noticing that it is gone
guard           what strangers send is measured before hivemind parses it
frames          the frames of streams, measured before they are read
lengths         how long the messages of each method may be
limits          how much other peers may ask
dht_messages    messages of the DHT: neighbours, and nothing that is stored
ids             peer ids as bytes, and their places in the DHT
plain_msgpack   reads msgpack of limited depth, without extension types
plain_json      reads JSON of any depth without an accident
hivemind_internals  the private names of hivemind that we use
hivemind_table  says of each what we rely on, pinned by a test
traffic         counts the bytes of all messages
bandwidth       token buckets that keep to the limits of upload and download
"""
