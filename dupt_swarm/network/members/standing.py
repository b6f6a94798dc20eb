"""How another peer stands with this one: what is known of it, and what rounds make of that."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Standing:
    """All that rounds need to know of a peer.

    Attributes:
        decides: it is of the electorate of our state.
        comes: rounds have not waited for it in vain, or they wait for everybody once more.
        exposed: it has signed what contradicts itself.
        admitted: it may be in the swarm; not if it was revoked.
        lives: it does not say that it goes, and where it was somebody listens.
        callable: others can call it, as far as its record tells.
    """

    decides: bool = True
    comes: bool = True
    exposed: bool = False
    admitted: bool = True
    lives: bool = True
    callable: bool = True

    @property
    def awaited(self) -> bool:
        """Whether a round waits for it where it is seen to be at work."""
        return self.comes and not self.exposed

    @property
    def eligible(self) -> bool:
        """Whether what it says of a round is listened to, and what it brings may count."""
        return not self.exposed and (self.decides or self.comes)

    @property
    def counted(self) -> bool:
        """Whether it may still be one of a quorum: who is not has left without a word."""
        return self.decides and self.admitted and self.lives

    @property
    def coordinates(self) -> bool:
        """Whether others may turn to it for a ballot."""
        return self.decides and self.callable and not self.exposed
