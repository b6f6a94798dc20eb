"""`Swarm`: this process's membership in a swarm, which is a manifest and a node."""

from __future__ import annotations

import contextlib
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from concurrent.futures import Future
from dataclasses import replace
from pathlib import Path

from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey
from torch import Tensor

from dupt_swarm.checkpoint import REPLICA_FILE, newest_whole
from dupt_swarm.discovery import check_some, discover, invited
from dupt_swarm.disk.folders import SwarmFolder, default_state_dir
from dupt_swarm.errors import CheckpointError, ManifestError, NodeError, UsageError
from dupt_swarm.manifest import Manifest
from dupt_swarm.node.commands import Attest, CancelRound, EndRound, ReadVoters, Save
from dupt_swarm.node.messages import (
    Adopted,
    CatchingUp,
    Downloading,
    Joined,
    LedgerPlace,
    OfferedName,
    RoundResult,
    StateName,
    Traffic,
)
from dupt_swarm.node.node import Node
from dupt_swarm.node.record import RecordUpdate
from dupt_swarm.node.view import View
from dupt_swarm.organiser.attestation import Attestation
from dupt_swarm.replica.first_state import first_state
from dupt_swarm.replica.storage import save_state
from dupt_swarm.settings import NodeSettings

INITIAL_FILE = "initial.safetensors"  # beside a manifest with an `initial_digest`: the state of round 0
FIRST_PEER_SECONDS = 60.0  # for so long after its last record is it thought to be there still
ANSWER_SECONDS = 30.0  # beyond what the manifest allows the end of a round


class Swarm:
    """A peer that holds the replica state. Close it, or use it in a ``with`` statement.

    Attributes:
        manifest: what all peers of the swarm share.
        tokenizer: the bytes of its tokenizer.json.
        folder: where this peer keeps its state.
        state: the replica state whose parameters are in `anchor`: `adopt` changes it, and whoever has called
            `average` sets it to that of the result.
    """

    def __init__(self, node: Node, folder: SwarmFolder, joined: Joined) -> None:
        """Use `join` or `create`."""
        self._node, self.folder = node, folder
        self.manifest = Manifest.from_bytes(joined.manifest)
        self.tokenizer = joined.tokenizer
        self.peer_id, self.addresses = joined.peer_id, joined.addresses
        assert joined.state is not None
        self.state: StateName = joined.state
        self.beginning = joined.beginning
        self._saved: StateName = joined.state  # in the newest checkpoint, if there is one
        self.layout = joined.layout
        self._memory = node.attach()
        node.refresh()  # the other peers should be known before the first step
        node.supervise()

    @classmethod
    def join(
        cls,
        initial_peers: Sequence[str],
        state_dir: Path | str | None = None,
        settings: NodeSettings | None = None,
        on_download: Callable[[Downloading], None] = lambda _: None,
        check: Callable[[Manifest], None] = lambda _: None,
    ) -> Swarm:
        """Join the swarm that ``initial_peers`` are in, as an oracle unless ``settings`` say otherwise.

        Manifest, tokenizer and state come from the swarm, checked by their hashes; a state that this
        peer saved earlier is gone on with.

        Args:
            initial_peers: multiaddrs ending in ``/p2p/<peer id>``, at least one.
            state_dir: default: the platform's folder for program state.
            settings: role, name, addresses to listen on, the swarm expected.
            on_download: hears how far the download of a state is, in another thread.
            check: gets the swarm's manifest before anything is fetched or written; it may raise, to stay out.

        Raises:
            DuptError: why it is not possible; see `errors`.
        """
        check_some(initial_peers)
        wish = replace(settings or NodeSettings("oracle"), initial_peers=tuple(initial_peers))
        node = Node(on_download)
        try:
            folder = Path(state_dir or default_state_dir())
            wish = discover(node, wish, folder)
            check(Manifest.from_bytes(wish.manifest))
            return cls._enter(node, wish, folder)
        except BaseException:
            node.close()
            raise

    @classmethod
    def create(
        cls,
        manifest: Manifest,
        tokenizer: bytes,
        parameters: Iterable[Tensor],
        state_dir: Path | str | None = None,
        settings: NodeSettings | None = None,
    ) -> Swarm:
        """Start a swarm, or resume it from this peer's checkpoint, without any other peer.

        With initial peers in the settings, it is one more first peer of a swarm that is there already.

        Args:
            manifest: of the new swarm.
            tokenizer: tokenizer.json that the manifest names.
            parameters: initial values, in the order in which all peers' models have them.
            state_dir: as in `join`.
            settings: as in `join`; the default role is ``bootstrap``.

        Raises:
            DuptError: why it is not possible; see `errors`.
        """
        wish = settings or NodeSettings("bootstrap")
        wish = replace(wish, manifest=manifest.canonical_bytes(), tokenizer=tokenizer)
        node = Node()
        try:
            return cls._enter(node, wish, Path(state_dir or default_state_dir()), parameters)
        except BaseException:
            node.close()
            raise

    @classmethod
    def _enter(
        cls,
        node: Node,
        wish: NodeSettings,
        state_dir: Path,
        parameters: Iterable[Tensor] | None = None,
    ) -> Swarm:
        manifest = Manifest.from_bytes(wish.manifest)
        wish = invited(manifest, wish, state_dir)
        folder = SwarmFolder(state_dir, manifest.swarm_id, wish.role)
        try:
            checkpoint = newest_whole(folder)
            if checkpoint is None and parameters is not None and not wish.initial_peers:
                checkpoint = _save_first(folder, manifest, parameters)
            node.log_to(folder.log)
            joined = node.join(
                replace(
                    wish,
                    identity_path=folder.identity,
                    own_folder=folder.path,
                    offer=wish.offer or folder.offered.path,
                    checkpoint=checkpoint / REPLICA_FILE if checkpoint else None,
                    revoked=wish.revoked or folder.revoked,
                    tokenizer=wish.tokenizer or folder.tokenizer,
                )
            )
            folder.save_shared(joined.manifest, joined.tokenizer, wish.invitation)
            return cls(node, folder, joined)
        except BaseException:
            folder.close()
            raise

    def __enter__(self) -> Swarm:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    @property
    def view(self) -> View:
        """The live peers, as of a second ago."""
        return self._node.hearing.view

    @property
    def anchor(self) -> Tensor:
        """The parameters of `state`, flat, in memory shared with the node; not to be written.

        They stay as they are until `average` or `adopt` is called at the state that follows, in whichever
        thread they are read and wherever the node has got to meanwhile.
        """
        assert self.state.place is not None
        return self._memory.vectors.at(self.state.place)

    @property
    def contribution(self) -> memoryview:
        """Where an encoded contribution is put before `average`: bytes shared with the node."""
        return self._memory.contribution

    @property
    def catching_up(self) -> CatchingUp:
        """Where the node stands with fetching a newer state, which `adopt` takes over."""
        return self._node.hearing.catching_up

    @property
    def handed_over(self) -> bool:
        """Whether nothing is lost to the swarm when this peer leaves: another has its state, or a newer one.

        That is a first peer where there is one, since other oracles may be leaving too: also one whose record
        is late, as it may be on a busy machine. With nobody there, nobody can have it.
        """
        hearing = self._node.hearing
        others = hearing.view.without(self.peer_id)
        if not others.first_peers and time.monotonic() - hearing.first_peer_at < FIRST_PEER_SECONDS:
            return False
        keepers = others.first_peers or others.peers
        return not keepers or any(peer.record.swarm_tokens >= self.state.swarm_tokens for peer in keepers)

    @property
    def traffic(self) -> Traffic:
        """Bytes exchanged with other peers by the present node process."""
        return self._node.hearing.traffic

    @property
    def ledger_place(self) -> LedgerPlace | None:
        """What this peer has given ever, by the chain of rounds; None: it is not known yet."""
        return self._node.hearing.ledger_place

    @property
    def restarts(self) -> Mapping[str, int]:
        """How often the node process was replaced, by reason."""
        return self._node.restarts

    def listen(self, on_event: Callable[[object], None]) -> None:
        """From now on ``on_event`` too hears the events of `node.messages`, in a thread of the node's."""
        self._node.hearing.listeners.append(on_event)

    def publish(self, update: RecordUpdate, *, now: bool = False) -> None:
        """Change this peer's record; ``now``: tell the others at once."""
        self._node.publish(update, now=now)

    @property
    def candidate(self) -> tuple[str, Tensor] | None:
        """Digest and anchor of the state that the round under way leads to, while it is to be judged.

        The anchor is not to be written.
        """
        candidate = self._node.hearing.candidate
        return None if candidate is None else (candidate.digest, self._memory.vectors.at(candidate.place))

    def judge(self, digest: str, *, accepted: bool) -> None:
        """Whether this peer should accept the candidate with this digest."""
        self._node.judge(digest, accepted=accepted)

    def average(self, size: int, tokens: int, *, judged: bool = False) -> Future[RoundResult]:
        """End the round that began with `state`, with what is in `contribution`.

        Args:
            size: bytes of it; 0: it was not finite, and the round fails for this oracle.
            tokens: what it stands for.
            judged: whether a `candidate` will be judged; if it takes too long, it is accepted.

        Returns:
            How it went, when it has ended; a node that dies or does not answer is a round that failed. If
            there is a state, set `state` to it: until then `anchor` stays as it is.
        """
        seconds = self.manifest.rounds.ending_seconds + ANSWER_SECONDS
        return self._node.average(EndRound(self.state, size, tokens, judged), seconds)

    def cancel_average(self) -> None:
        """Give up the round that is being ended, if there is one; does not wait; from any thread."""
        self._node.tell(CancelRound())

    def adopt(self) -> Adopted:
        """Take over the newer state that the node has, if there is one, and say which it is."""
        adopted = Adopted(self.state)
        # When it is back there is a state to adopt.
        with contextlib.suppress(NodeError):
            adopted = self._node.adopt(self.state)
        self.state = adopted.state
        return adopted

    def save_replica(self, checkpoint: Path) -> StateName:
        """Write the node's replica state into the folder ``checkpoint``, and say which one it is.

        A first peer's node moves on by itself; an oracle's may, when started again, be ahead of `state`.
        """
        self._saved = self._node.ask(Save(checkpoint / REPLICA_FILE))
        return self._saved

    def attest(self, organiser: Ed25519PrivateKey) -> None:
        """Have the organiser say which state this peer is at, and who decides what follows, to all who ask.

        The key stays in this process: the node, which reads what strangers send, gets the signature only.
        """
        with contextlib.suppress(NodeError):  # when it is back, there is a next time
            state, voters = self._node.ask(ReadVoters())
            if state.round:
                said = Attestation(self.manifest.swarm_id, state.round, state.digest, voters)
                self._node.tell(Attest(said.signed(organiser)))

    def announce_checkpoint(self) -> None:
        """Announce the newest checkpoint, which holds the state that was last saved or joined with."""
        checkpoint = self.folder.checkpoint
        if checkpoint is not None:
            saved_at = checkpoint.stat().st_mtime
            self.publish(RecordUpdate(checkpoint_round=self._saved.round, checkpoint_time=saved_at))

    def want_offered(self, files: Sequence[OfferedName]) -> None:
        """Have these files of the swarm's offer come into the folder, the first one first; does not wait."""
        self._node.want_offered(files)

    def close(self) -> None:
        """Leave the swarm; the folder is free for another peer afterwards."""
        try:
            self._node.close()
        finally:
            self.folder.close()


def _save_first(folder: SwarmFolder, manifest: Manifest, parameters: Iterable[Tensor]) -> Path | None:
    """Write a checkpoint of round 0.

    Raises:
        UsageError: there are no parameters.
        ManifestError: the manifest names another state.
        CheckpointError: later rounds are lost, as their checkpoints are damaged.
    """
    if folder.damaged:
        raise CheckpointError(
            f"{folder.path}: all checkpoints are damaged; fetch the state from a peer that has it, or remove "
            f"{', '.join(path.name for path in folder.damaged)} to begin again at round 0",
            setting="initial_peers",
        )
    own = list(parameters)
    if not own:
        raise UsageError("a new swarm needs a model: give its parameters (an iterator gives them only once)")
    first = first_state(manifest, own)
    if manifest.initial_digest not in ("", first.digest):
        raise ManifestError(
            f"`initial_digest` is {manifest.initial_digest[:12]}… in the manifest, but the state "
            f"to begin with has {first.digest[:12]}…; use the one that was written with it"
        )
    with folder.new_checkpoint() as path:
        save_state(first, path / REPLICA_FILE)
    return folder.checkpoint
