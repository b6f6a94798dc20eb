"""The connection to other peers.

daemon          starting ``p2pd``, dialling, noticing that it is gone
traffic         counts the bytes of all messages
bandwidth       token buckets that keep to the limits of upload and download
"""
