"""Where a peer keeps its state: a folder per swarm and role, locked by the peer that uses it.

An oracle has <swarm id>, a bootstrap <swarm id>.bootstrap and an evaluator <swarm id>.evaluator, so that
one of each may run on the same state folder. Beside them lies last-join.json, which is what the last oracle
was asked for. In each there is

<state dir>/<folder>/  lock            held while a peer runs; says its role
                       identity        the private key
                       invitation      the token that it came by, where the swarm admits by invitation
                       revoked         the organiser's revocations, likewise
                       manifest.json   canonical bytes
                       tokenizer.json
                       peers.json      addresses of peers met before
                       offences.json   proofs against peers that have contradicted themselves
                       chain.jsonl     the links of all rounds
                       pledges.json    what this peer has signed of the last states
                       origins/        anchors from which less than a quorum went on
                       offer/          text that the swarm offers, see `disk.offered`
                       node.log
                       checkpoint-<number>/  see `checkpoint`
                       checkpoint-<number>.damaged/  one that could not be read
                       tokens/         the tokenised corpus, or corpora, a folder each
                       tasks/          the state that an evaluator just now measures on tasks
                       control         the socket by which its owner controls it, while it runs
"""

from __future__ import annotations

import os
import shutil
from collections.abc import Callable, Collection, Iterator
from contextlib import contextmanager
from pathlib import Path

import platformdirs

from dupt_swarm.disk.files import sync_files, sync_folder, write_atomically, write_secret
from dupt_swarm.disk.home import expanded
from dupt_swarm.disk.limit import LOGS, DiskLimit, folder_bytes, format_bytes
from dupt_swarm.disk.locks import lock_file
from dupt_swarm.disk.offered import OfferedFolder, free_bytes
from dupt_swarm.errors import CheckpointError, CorpusError, UsageError
from dupt_swarm.settings import Role

LOCK = "lock"
CHECKPOINTS_KEPT = 2
DAMAGED = ".damaged"
ADDRESS_BOOK_FILE = "peers.json"
OFFENCES_FILE = "offences.json"
CHAIN_FILE = "chain.jsonl"
PLEDGES_FILE = "pledges.json"
ORIGINS_FOLDER = "origins"
INVITATION_FILE = "invitation"
REVOKED_FILE = "revoked"
OFFER_FOLDER = "offer"  # also beside the manifest, where `dupt-peer new --offer` has written it


def default_state_dir() -> Path:
    """The platform's folder for program state."""
    return Path(platformdirs.user_state_dir("dupt_swarm"))


def keep_compiled_kernels() -> None:
    """Have PyTorch keep compiled kernels in the user's cache folder, not in the temporary one.

    A volunteer who comes back then starts at once; and /tmp stays as it was.
    """
    os.environ.setdefault("TORCHINDUCTOR_CACHE_DIR", platformdirs.user_cache_dir("dupt_swarm"))


class SwarmFolder:
    """One peer's folder for one swarm; locked until closed.

    Attributes:
        path: the folder.
        identity: the private key.
        chain: the links of all rounds.
        offered: text that the swarm offers.
        revoked: which invitations count no longer.
        log: the node's messages.
        tokens: the tokenised corpora.
        disk: its limit.
    """

    def __init__(self, state_dir: Path, swarm_id: str, role: Role = "oracle") -> None:
        """Make the folder if need be, and lock it.

        Raises:
            UsageError: another peer uses it, or it cannot be written or locked.
        """
        self.path = folder_of(state_dir, swarm_id, role)
        self.identity, self.chain = self.path / "identity", self.path / CHAIN_FILE
        self.revoked, self.offered = self.path / REVOKED_FILE, OfferedFolder(self.path / OFFER_FOLDER)
        self.log, self.tokens = self.path / LOGS[0], self.path / "tokens"
        self.disk = DiskLimit(self.path)
        try:
            # Its tokens are the owner's corpus.
            self.path.mkdir(mode=0o700, parents=True, exist_ok=True)
            self._lock = (self.path / LOCK).open("a")
        except OSError as error:
            raise UsageError(
                f"{self.path}: cannot be written ({error.strerror}); choose another folder for the state",
                setting="state_dir",
            ) from error
        locked = lock_file(self._lock)
        if not locked:
            self._lock.close()
            why = f"another {role} of this swarm uses this folder; give this one a folder of its own"
            if locked is None:
                why = "its file system has no locks; choose a folder on another disk"
            raise UsageError(f"{self.path}: {why} for its state", setting="state_dir")
        self._lock.truncate(0)
        self._lock.write(f"{role}\n")
        self._lock.flush()

    def limit(self, most: int | None) -> None:
        """Limit the folder's size on disk to ``most`` bytes; None: no limit.

        Raises:
            UsageError: the folder takes more already.
        """
        self.disk = DiskLimit(self.path, most)

    def save_shared(self, manifest: bytes, tokenizer: bytes, invitation: str = "") -> None:
        """Keep what all peers share, and the token by which this one came, if any, for its owner only."""
        write_atomically(self.path / "manifest.json", lambda file: file.write_bytes(manifest))
        write_atomically(self.path / "tokenizer.json", lambda file: file.write_bytes(tokenizer))
        if invitation:
            write_secret(self.path / INVITATION_FILE, f"{invitation}\n")

    @property
    def tokenizer(self) -> bytes:
        """The saved tokenizer.json, or empty bytes."""
        path = self.path / "tokenizer.json"
        return path.read_bytes() if path.exists() else b""

    @property
    def checkpoint(self) -> Path | None:
        """The newest checkpoint, if there is one."""
        found = self._checkpoints()
        return found[-1] if found else None

    def set_aside(self, checkpoint: Path) -> Path:
        """Rename a damaged ``checkpoint``, so that the one before is the newest; the last such ones are kept.

        Raises:
            CheckpointError: the folder cannot be written.
        """
        aside = checkpoint.with_name(checkpoint.name + DAMAGED)
        try:
            checkpoint.rename(aside)
        except OSError as error:
            raise CheckpointError(
                f"{checkpoint}: damaged, and cannot be renamed ({error.strerror}); remove it"
            ) from error
        _remove(self.damaged[:-CHECKPOINTS_KEPT])
        return aside

    @property
    def damaged(self) -> list[Path]:
        """The checkpoints that were set aside, the oldest first."""
        return self._checkpoints(DAMAGED)

    @contextmanager
    def new_checkpoint(self, go_on: Callable[[int, int], bool] = lambda *_: True) -> Iterator[Path]:
        """A folder to write a checkpoint into; it becomes the newest one if all goes well.

        Its files are made durable before that. Whoever is in a hurry leaves that to the system: the
        checkpoint then outlives this process, but not a power cut within the next half minute.

        Args:
            go_on: see `sync_files`.

        Raises:
            CheckpointError: it cannot be written; the checkpoints before are as they were.
        """
        previous = self._checkpoints()
        numbers = (path.name.removesuffix(DAMAGED).rpartition("-")[2] for path in previous + self.damaged)
        number = 1 + max(map(int, numbers), default=0)
        unfinished = self.path / ".checkpoint"
        shutil.rmtree(unfinished, ignore_errors=True)
        self._make_room(folder_bytes(previous[-1]) if previous else 0)
        try:
            unfinished.mkdir()
            yield unfinished
            self._make_room(0)  # its size was an estimate before
            sync_files(sorted(unfinished.iterdir()), go_on)
            unfinished.rename(self.path / f"checkpoint-{number:08d}")
            sync_folder(self.path)
        except OSError as error:
            raise CheckpointError(
                f"{self.path}: no checkpoint could be written ({error.strerror or error}); free some space"
            ) from error
        finally:
            shutil.rmtree(unfinished, ignore_errors=True)
        self._remove_checkpoints(CHECKPOINTS_KEPT)

    def make_room_for_text(self, size: int, keep: Collection[str]) -> str:
        """Make room for a file of the offer, of ``size`` bytes, by removing others but those to ``keep``.

        As long as there is one checkpoint only, another as large has its room besides; and so it has on the
        disk, whatever may be taken of that. Nothing is removed where that would not suffice.

        Returns:
            Why there is none, with the remedy; or an empty string.
        """
        checkpoints = self._checkpoints()
        last = folder_bytes(checkpoints[-1]) if checkpoints else 0
        needed = size + (last if len(checkpoints) < CHECKPOINTS_KEPT else 0)

        def problem(removed: int = 0) -> str:
            return (
                self.disk.problem(needed - removed, "text and a checkpoint")
                or self.offered.problem(size - removed)
                or self._problem_of_disk(size + last - removed)
            )

        stay = self.offered.pinned.union(keep)
        removable = sum(bytes for name, bytes in self.offered.sizes.items() if name not in stay)
        if hopeless := problem(removable):
            return hopeless
        self.offered.shrink(lambda: not problem(), keep)
        return problem()

    def _problem_of_disk(self, size: int) -> str:
        free = free_bytes(self.path)
        if size <= free:
            return ""
        return f"{self.path}: {format_bytes(free)} of the disk are free, too little for text and a checkpoint"

    def close(self) -> None:
        """Release the folder's lock."""
        self._lock.close()

    def _make_room(self, size: int) -> None:
        """Make room for a checkpoint of ``size`` bytes within the disk limit, by removing old ones."""
        if self.disk.problem(size, "a checkpoint"):
            self._remove_checkpoints(1)
            shutil.rmtree(self.path / ORIGINS_FOLDER, ignore_errors=True)
        self.offered.shrink(
            lambda: not self.disk.problem(size, "a checkpoint") and free_bytes(self.path) >= size
        )
        if problem := self.disk.problem(size, "a checkpoint"):
            raise CheckpointError(f"no checkpoint was written: {problem}", setting="max_disk")

    def _remove_checkpoints(self, keep: int) -> None:
        _remove(self._checkpoints()[:-keep])

    def _checkpoints(self, suffix: str = "") -> list[Path]:
        return sorted(self.path.glob("checkpoint-" + 8 * "[0-9]" + suffix))


def _remove(folders: list[Path]) -> None:
    for folder in folders:
        shutil.rmtree(folder, ignore_errors=True)


def kept_invitation(folder: Path) -> str:
    """The token by which the peer of this folder came to its swarm; empty if it needed none."""
    path = folder / INVITATION_FILE
    return path.read_text().strip() if path.exists() else ""


def folder_of(state_dir: Path, swarm_id: str, role: Role) -> Path:
    """The folder of the peer of this role."""
    return expanded(state_dir) / (swarm_id if role == "oracle" else f"{swarm_id}.{role}")


def is_in_use(folder: Path) -> bool:
    """Whether a peer has this swarm folder now."""
    try:
        with (folder / LOCK).open("a") as lock:
            return lock_file(lock) is False
    except FileNotFoundError:
        return False


def limited(folder: SwarmFolder, progress: Callable[[int, int], None] | None) -> Callable[[int, int], None]:
    """A progress callback for tokenising that enforces the disk limit.

    It is called with the bytes of a corpus done and in total; what is on disk by then predicts the rest.

    Raises:
        CorpusError: when called, if the tokens will not have room.
    """

    def watch(done: int, total: int) -> None:
        tokens = sum(map(folder_bytes, folder.tokens.glob("*.building")))
        if problem := folder.disk.problem(
            round(tokens * (total / max(done, 1) - 1)), "the rest of the tokens"
        ):
            raise CorpusError(f"the corpus was not tokenised: {problem}", setting="max_disk")
        if progress is not None:
            progress(done, total)

    return watch
