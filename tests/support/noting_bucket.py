"""A token bucket that notes what passes."""

from dupt_swarm.network.p2p.bandwidth import TokenBucket


class NotingBucket(TokenBucket):
    """Notes how many bytes of each message pass, and whether it takes priority."""

    def __init__(self, rate: float) -> None:
        super().__init__(rate)
        self.passed: list[tuple[int, bool]] = []

    async def take(self, amount: int, *, urgent: bool = False) -> None:
        self.passed.append((amount, urgent))
        await super().take(amount, urgent=urgent)
