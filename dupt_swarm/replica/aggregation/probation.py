"""What newcomers' contributions count for while they are on probation."""

from __future__ import annotations

from collections.abc import Sequence

from dupt_swarm.replica.draw import drawn
from dupt_swarm.replica.voters import Voters

NEWCOMER = 0.25  # a newcomer moves the state by a quarter of what a voter does


def standings(makers: Sequence[str], voters: Voters, state: str) -> list[float]:
    """For how much each contribution counts: 1 a voter's, 0.25 a newcomer's, 0 that of one newcomer too many.

    Keys are cheap, so there are never more newcomers than voters in an average: a rule can bear that less
    than half are hostile, and voters' norms and weights bound the others'. Where no voter contributes, all
    count alike.

    Args:
        makers: ids of the peers that contribute.
        voters: of the state before the round.
        state: its digest, from which follows who is one too many: each round somebody else.
    """
    newcomers = [maker for maker in makers if maker not in voters]
    if len(newcomers) == len(makers):
        return [1.0] * len(makers)
    admitted = set(drawn(newcomers, state)[: len(makers) - len(newcomers)])
    return [1.0 if maker in voters else NEWCOMER if maker in admitted else 0.0 for maker in makers]
