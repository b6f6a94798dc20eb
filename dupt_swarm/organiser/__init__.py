"""The organiser: one key that says who organises a swarm, and what it signs.

key           the organiser's private key, in a file beside the manifest
signed        content with its signature, bound to a kind
invitation    invitations, the tokens that hand them out, and the credentials that peers show
revocations   which invitations count no longer
attestation   which state a swarm is at, and who votes on the next one
"""

KEY_FILE = "organiser.key"  # beside the manifest
