"""Rounds as a peer keeps them in its log, without a swarm that made them."""

from __future__ import annotations

import base64
from dataclasses import dataclass, field

import torch
from hivemind.utils.crypto import RSAPrivateKey

from dupt_swarm.manifest import Manifest
from dupt_swarm.network.averaging.pledge import Subject, Vote
from dupt_swarm.network.averaging.roll import Statement
from dupt_swarm.replica.blob import Blob
from dupt_swarm.replica.contribution import Claim
from dupt_swarm.replica.log_entry import Input, LogEntry
from dupt_swarm.replica.replay import contribution_form, replay
from dupt_swarm.replica.signed import peer_id_of_key
from dupt_swarm.replica.state import ReplicaState
from tests.support.contributions import encoded

NUMEL = 1000
NOTHING = "0" * 64


@dataclass
class KeptRounds:
    """What one member with ``key`` did by itself; the first state is of ones.

    Attributes:
        states: one more than there are entries.
        entries: the log.
        blobs: of all contributions, by digest.
    """

    manifest: Manifest
    key: RSAPrivateKey
    states: list[ReplicaState] = field(default_factory=list)
    entries: list[LogEntry] = field(default_factory=list)
    blobs: dict[str, Blob] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self.states.append(ReplicaState(0, 0, ((NUMEL,),), torch.ones(NUMEL), {}))

    def contribute(self, values: torch.Tensor) -> tuple[LogEntry, Blob]:
        """An entry with these values for the next round, which names no state that follows."""
        state, maker = self.states[-1], peer_id_of_key(self.key.get_public_key().to_bytes())
        claim = Claim(state.round, state.digest, 10, maker)
        blob = contribution_form(self.manifest, NUMEL).build(claim, encoded(values, self.manifest))
        statement = Statement.make(self.manifest.swarm_id, claim, blob.digest, self.key).data
        entry = LogEntry(
            round=state.round + 1,
            before=state.digest,
            after=NOTHING,
            exchange="share",
            members=(maker,),
            inputs=(
                Input(
                    digest=blob.digest, tokens=10, maker=maker, statement=base64.b64encode(statement).decode()
                ),
            ),
        )
        return entry, blob

    def voted(self, entry: LogEntry, after: str) -> LogEntry:
        """``entry`` as it leads to the state ``after``, with the member's vote for it."""
        subject = Subject(self.manifest.swarm_id, "", entry.round - 1, entry.before)
        vote = Vote.sign(subject, after, entry.members[0], self.key)
        votes = (base64.b64encode(vote.data).decode(),)
        return entry.model_copy(update={"after": after, "votes": votes})

    def end_round(self, values: torch.Tensor) -> None:
        """An honest round."""
        entry, blob = self.contribute(values)
        state = replay(self.manifest, self.states[-1], entry, {blob.digest: blob})
        self.entries.append(self.voted(entry, state.digest))
        self.states.append(state)
        self.blobs[blob.digest] = blob
