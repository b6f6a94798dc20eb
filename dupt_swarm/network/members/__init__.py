"""The members of the swarm.

identity        the Ed25519 key that makes the peer id and signs records, also of who only looks
records         the records that this peer knows: signed, checked, so many at most
gossip          how records spread: pushed, passed on, and pulled
membership      publishes our record, reads everybody's
attendance      who comes to rounds, and whose word is not believed for a while
dialling        which peers to dial at addresses that others told, and again when neighbours are gone
liveness        detects dead peers by their refused connections
"""
