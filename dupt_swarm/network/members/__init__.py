"""Who is in the swarm.

identity        the RSA key that makes the peer id and signs records
validator       what a DHT node accepts as a record
membership      publishes the own record, reads everybody's
distrust        whose claims of a state are not believed for a while
liveness        notices peers that died, by their ports
neighbours      finds the way back when all neighbours are gone
"""
