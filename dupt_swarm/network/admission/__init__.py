"""Whom a swarm admits.

guests         who has shown a valid credential, and what revokes it
by_invitation  shows one's own credential to others, and asks for theirs
building       the admission that a manifest names
"""
