"""Checks of this machine: its device, memory and disk, and the corpus."""

from __future__ import annotations

import os
import shutil
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

import psutil

from dupt_swarm.command_line.exit_codes import message
from dupt_swarm.disk.limit import folder_bytes, format_bytes
from dupt_swarm.disk.offered import TEXT_BYTES
from dupt_swarm.errors import CorpusError, DeviceError, UsageError
from dupt_swarm.learning.left_out import LeftOut, TextFiles
from dupt_swarm.manifest import Manifest
from dupt_swarm.settings import OracleSettings
from peers.checks.report import UNSUITABLE, Check
from peers.screen.words import about_left_out, plural

if TYPE_CHECKING:
    from peers.checks.footprint import Footprint

TEXT_BYTES_PER_TOKEN = 3.0  # of a small vocabulary and English text; a larger one packs more
CGROUP = Path("/sys/fs/cgroup")


def check_device(name: str) -> tuple[Check, str]:
    """Whether the device is there; and what it is called, such as ``cuda:1``, or empty if it is not."""
    from dupt_swarm.learning.device import choose_devices, in_short

    try:
        devices = choose_devices(name)
    except DeviceError as error:
        return Check("device", False, message(error), exit_code=UNSUITABLE), ""
    found = in_short(devices)
    return Check("device", True, describe_device(found)), found


def describe_device(device: str) -> str:
    """A device, or several, in words: the name, and what it is or how many threads it has."""
    import torch

    if device.startswith("cuda"):
        return f"{device}, {torch.cuda.get_device_name(device.partition(',')[0])}"
    return f"{device}, {plural(torch.get_num_threads(), 'thread')}" if device == "cpu" else device


def check_memory(device: str, footprints: Sequence[Footprint], part: float = 1.0) -> list[Check]:
    """Whether the model fits: on the GPU, if that is one, and in the main memory.

    Args:
        device: of `check_device`; of several the first tells.
        footprints: of the model, that for which nothing gives way first; none: they are not known yet.
        part: of all memory that a GPU has, what training may take at most.
    """
    from peers.checks.footprint import PROGRAM

    free = free_memory()
    if not footprints:
        hint = "give --manifest or --initial-peers to see whether a model fits"
        return [Check("memory", None, f"{format_bytes(free)} free", hint)]
    checks, footprint = [], footprints[0]
    if on_gpu := device.startswith("cuda"):
        import torch

        gpu_free, total = torch.cuda.mem_get_info(torch.device(device.partition(",")[0]))
        gpu_free = min(gpu_free, int(part * total))
        footprint = next((each for each in footprints if each.device <= gpu_free), footprints[-1])
        larger = "a larger GPU" if part == 1 else "more --gpu-memory"
        remedy = f"choose a smaller --batch-size, or {larger}"
        checks = [_memory("GPU memory", footprint.device, gpu_free, remedy, str(footprint.saving))]
    # On a Mac the GPU has the main memory; a trainer takes some itself, wherever it trains.
    needed = PROGRAM + footprint.node + (0 if on_gpu else footprint.device)
    remedy = "close other programs" + ("" if on_gpu else ", or choose a smaller --batch-size")
    return [*checks, _memory("memory", needed, free, remedy)]


def check_disk(state_dir: Path, swarm_id: str, needed: float | None, max_disk: int | None) -> Check:
    """Whether the state folder can be written, and holds what will be kept there.

    Args:
        state_dir: of all swarms.
        swarm_id: of this one; empty if it is not known yet.
        needed: bytes of checkpoints and tokens; None: not known.
        max_disk: what the swarm's folder may take, if that is limited.
    """
    place = _nearest(state_dir)
    if place is None or not os.access(place, os.W_OK | os.X_OK):
        return Check("disk", False, f"{state_dir} cannot be written", "choose another --state-dir")
    free = shutil.disk_usage(place).free
    if needed is None:
        return Check("disk", True, f"{format_bytes(free)} free for {state_dir}")
    there = folder_bytes(state_dir / swarm_id) if swarm_id else 0
    detail = f"about {format_bytes(needed)} needed, {format_bytes(free + there)} available for {state_dir}"
    if needed > free + there:
        return Check("disk", False, detail, "free some space, or choose another --state-dir")
    if max_disk is not None and needed > max_disk:
        return Check("disk", False, f"{detail}, but --max-disk is {format_bytes(max_disk)}", "raise it")
    return Check("disk", True, detail)


def check_data(data: OracleSettings, manifest: Manifest | None) -> tuple[list[Check], int]:
    """Whether a trainer can use the data, and how many bytes of text are to be tokenised onto the disk."""
    from dupt_swarm.learning.mixture import texts_of, weight_of_offered

    if manifest is not None and not manifest.objective.reads_text:
        return [check_examples(data, manifest)], 0
    try:
        texts, offered = texts_of(data), weight_of_offered(data) is not None
    except UsageError as error:
        return [Check("corpus", False, message(error))], 0
    found = [check_corpus(text) for text in texts]
    named = [
        replace(check, name=f"corpus {text.path}") for (check, _), text in zip(found, texts, strict=True)
    ]
    checks = named if len(data.corpora) > 1 else [check for check, _ in found]
    return [*checks, *([check_offer(manifest)] if offered else [])], sum(size for _, size in found)


def check_offer(manifest: Manifest | None) -> Check:
    """Whether the swarm offers text to those who have none."""
    if manifest is None:
        hint = "give --manifest or --initial-peers to see whether the swarm offers text, or give --corpus"
        return Check("corpus", None, "none of your own", hint)
    if not manifest.offer:
        return Check("corpus", False, "none of your own, and this swarm offers none", "give --corpus")
    offer = manifest.offer
    return Check("corpus", True, f"the swarm's text: {offer.described}, {offer.tokens:,} tokens")


def check_examples(data: OracleSettings, manifest: Manifest) -> Check:
    """Whether examples are there for what the swarm learns; reads the first."""
    from dupt_swarm.learning.objectives import check_data
    from dupt_swarm.learning.objectives.tables import tables_of

    try:
        check_data(data, manifest)
        files = tables_of(data).find()
    except (CorpusError, UsageError) as error:
        return Check("corpus", False, message(error))
    size = sum(file.stat().st_size for file in files)
    return Check(
        "corpus", True, f"{plural(len(files), 'table')} for {manifest.objective.kind}, {format_bytes(size)}"
    )


def check_corpus(text: TextFiles) -> tuple[Check, int]:
    """Whether the corpus can be read, and how many bytes of text it has; looks through all of it."""
    left_out: list[LeftOut] = []
    try:
        sources = text.check_all(left_out.append)
    except CorpusError as error:
        return Check("corpus", False, message(error)), 0
    size = sum(source.size for source in sources)
    detail = "; ".join([f"{plural(len(sources), 'file')}, {format_bytes(size)}", *about_left_out(left_out)])
    return Check("corpus", None if left_out else True, detail), size


def token_bytes(text_bytes: int, manifest: Manifest) -> float:
    """An estimate of the bytes that the tokens of this much text take."""
    from dupt_swarm.learning.token_files import id_bytes

    return text_bytes / TEXT_BYTES_PER_TOKEN * id_bytes(manifest.model.vocabulary_size)


def offered_bytes(data: OracleSettings, manifest: Manifest) -> float:
    """What text that the swarm offers takes of the disk."""
    from dupt_swarm.learning.mixture import weight_of_offered
    from dupt_swarm.learning.token_files import id_bytes

    if weight_of_offered(data) is None:
        return 0.0
    return min(TEXT_BYTES, manifest.offer.tokens * id_bytes(manifest.tokenizer.vocabulary_size))


def free_memory() -> int:
    """Bytes of main memory to be had; in a container no more than it may take."""
    free = psutil.virtual_memory().available
    try:
        limit, used = (int((CGROUP / name).read_text()) for name in ("memory.max", "memory.current"))
    except (OSError, ValueError):
        return int(free)  # no container, or one without a limit
    return min(int(free), limit - used + _easily_freed())


def _easily_freed() -> int:
    """Bytes of files read once, which count as used in a container, and give way to whatever needs room."""
    try:
        lines = map(str.split, (CGROUP / "memory.stat").read_text().splitlines())
        return next(int(size) for name, size in lines if name == "inactive_file")
    except (OSError, ValueError, StopIteration):
        return 0


def _nearest(folder: Path) -> Path | None:
    """``folder``, or the folder above in which it would be made; None if none can be, or nobody may look."""
    try:
        while not folder.exists():
            folder = folder.parent
        return folder if folder.is_dir() else None
    except OSError:
        return None


def _memory(name: str, needed: float, free: float, remedy: str, how: str = "") -> Check:
    detail = "; ".join(filter(None, [f"about {format_bytes(needed)} needed, {format_bytes(free)} free", how]))
    return Check(name, True, detail) if needed <= free else Check(name, False, detail, remedy, UNSUITABLE)
