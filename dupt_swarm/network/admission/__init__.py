"""Whom a swarm admits.

admission      what every kind of admission answers; everybody, in an open swarm
guests         who has shown a valid credential, and what revokes it
by_invitation  shows one's own credential to others, and asks for theirs
building       the admission that a manifest names
"""
