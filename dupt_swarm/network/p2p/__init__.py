"""The connection to other peers.

daemon          starting ``p2pd``, dialling, noticing that it is gone
guard           what strangers send is measured before hivemind parses it
plain_msgpack   reads msgpack of limited depth, without extension types
hivemind_internals  every private name of hivemind that we use, pinned by a test
traffic         counts the bytes of all messages
bandwidth       token buckets that keep to the limits of upload and download
"""
