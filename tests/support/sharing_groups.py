"""Groups that share their contributions, without a network."""

from hivemind.utils.crypto import RSAPrivateKey

from dupt_swarm.network.averaging.group import SharingGroup
from dupt_swarm.network.averaging.roll import Roll, Statement
from dupt_swarm.replica.contribution import Claim
from dupt_swarm.replica.signed import peer_id_of_key
from dupt_swarm.replica.voters import Voters

SWARM, STATE = "test-0", "a" * 64


def member_keys(count: int) -> dict[str, RSAPrivateKey]:
    """Of so many members, by peer id, sorted."""
    made = [RSAPrivateKey() for _ in range(count)]
    return dict(sorted((peer_id_of_key(key.get_public_key().to_bytes()), key) for key in made))


def group_of(keys: dict[str, RSAPrivateKey], hidden: int = 0) -> SharingGroup:
    """All of them, each with a contribution to round 4; the last ``hidden`` cannot be called."""
    statements = [
        Statement.make(
            *(SWARM, Claim(3, STATE, 10 + place, peer), f"{place}" * 64, key),
            callable=place < len(keys) - hidden,
        )
        for place, (peer, key) in enumerate(keys.items())
    ]
    roll = Roll.call(statements[0].maker, keys[statements[0].maker], statements)
    return SharingGroup(SWARM, roll, Voters())
