"""Who is in the swarm.

signed          messages that others may pass on
identity        the RSA key that makes the peer id and signs records
looking         the identity with which a machine only looks
records         the records that this peer knows: signed, checked, so many at most
short_names     of what peers tell each other they know
gossip          how records spread: pushed, passed on, and pulled
membership      publishes our record, reads everybody's
distrust        whose claims of a state are not believed for a while
outdated        whose records say too little until there are newer ones
electorate      whose votes on a round count
attendance      whom rounds wait for
dialling        whom to dial at addresses that others told
liveness        detects dead peers by their refused connections
neighbours      reconnects when neighbours are gone
"""
