import errno
import mmap
import os
import stat
from collections.abc import Callable
from pathlib import Path

import pytest

from dupt_swarm.disk.files import SYNC_BYTES, create_secret, sync_files, write_atomically
from dupt_swarm.errors import FileError


def test_writes_the_file_and_nothing_else(tmp_path) -> None:
    """The file has what was written, and no temporary file stays."""
    path = tmp_path / "data"
    write_atomically(path, lambda file: file.write_bytes(b"new"))
    assert path.read_bytes() == b"new"
    assert list(tmp_path.iterdir()) == [path]


def test_is_not_there_before_it_is_whole(tmp_path) -> None:
    """While it is being written, readers see the file as it was before."""
    path = tmp_path / "data"
    path.write_bytes(b"old")
    seen = []

    def write(file) -> None:
        file.write_bytes(b"ne")
        seen.append(path.read_bytes())
        file.write_bytes(b"new")

    write_atomically(path, write)
    assert seen == [b"old"]
    assert path.read_bytes() == b"new"


def test_full_disk_leaves_the_old_file(tmp_path) -> None:
    """A full disk is a FileError with the remedy; the old file stays, and no half of the new one."""
    path = tmp_path / "data"
    path.write_bytes(b"old")

    def write(file) -> None:
        file.write_bytes(b"ne")
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    with pytest.raises(FileError, match=r"No space left on device.*free space there"):
        write_atomically(path, write)
    assert path.read_bytes() == b"old"
    assert list(tmp_path.iterdir()) == [path]


def test_other_errors_pass_and_leave_nothing(tmp_path) -> None:
    """An error that is not the disk's passes unchanged, and the temporary file is removed."""

    def write(file) -> None:
        file.write_bytes(b"ne")
        raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        write_atomically(tmp_path / "data", write)
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("folder", ["none", "file"])
def test_impossible_folder(tmp_path, folder: str) -> None:
    """A folder that is missing, or is a file, is a FileError too."""
    (tmp_path / "file").write_bytes(b"")
    with pytest.raises(FileError, match="cannot be written"):
        write_atomically(tmp_path / folder / "data", lambda file: file.write_bytes(b"new"))


@pytest.mark.parametrize(
    ("sizes", "asked"),
    [
        ((), []),
        ((0,), []),
        ((5,), [(0, 5)]),
        ((SYNC_BYTES,), [(0, SYNC_BYTES)]),
        (
            (SYNC_BYTES + 1, 7),
            [(0, SYNC_BYTES + 8), (SYNC_BYTES, SYNC_BYTES + 8), (SYNC_BYTES + 1, SYNC_BYTES + 8)],
        ),
    ],
)
def test_files_become_durable_piece_by_piece(tmp_path, sizes, asked) -> None:
    """Before each piece somebody hears how far it is, and may say that it is enough."""
    paths = [tmp_path / str(number) for number in range(len(sizes))]
    for path, size in zip(paths, sizes, strict=True):
        path.write_bytes(b"x" * size)
    heard = []

    def go_on(done, total) -> bool:
        heard.append((done, total))
        return True

    sync_files(paths, go_on)
    assert heard == asked
    assert [path.read_bytes() for path in paths] == [b"x" * size for size in sizes]
    heard.clear()
    sync_files(paths, lambda done, total: not go_on(done, total))
    assert heard == asked[:1]


@pytest.fixture
def order(monkeypatch) -> list[str]:
    """What becomes durable, and what gets its name, in order."""
    noted: list[str] = []
    fsync, link, replace = os.fsync, os.link, Path.replace

    def sync(fd: int) -> None:
        noted.append("folder" if stat.S_ISDIR(os.fstat(fd).st_mode) else "file")
        fsync(fd)

    monkeypatch.setattr(os, "fsync", sync)

    def naming(name: Callable[[Path, Path], object]) -> Callable[[Path, Path], object]:
        def named(one: Path, other: Path) -> object:
            noted.append("name")
            return name(one, other)

        return named

    monkeypatch.setattr(os, "link", naming(link))
    monkeypatch.setattr(Path, "replace", naming(replace))
    return noted


def test_a_file_is_durable_before_it_has_its_name(tmp_path, order) -> None:
    """And then the name: a power cut leaves the old one or the new one, whole; unless nobody minds."""
    write_atomically(tmp_path / "data", lambda file: file.write_bytes(b"new"))
    create_secret(tmp_path / "secret", b"key")
    assert order == 2 * ["file", "name", "folder"]
    order.clear()
    write_atomically(tmp_path / "data", lambda file: file.write_bytes(b"new"), durable=False)
    assert order == ["name"]


def test_every_piece_becomes_durable(tmp_path, order, monkeypatch) -> None:
    """None is left to the system, nor are the files' sizes."""
    flushed = []

    class Noted(mmap.mmap):
        def flush(self, *place: int) -> None:
            flushed.append(place)
            super().flush(*place)

    monkeypatch.setattr(mmap, "mmap", Noted)
    paths = [tmp_path / str(size) for size in (SYNC_BYTES + 1, 7, 0)]
    for path in paths:
        path.write_bytes(bytes(int(path.name)))
    sync_files(paths, lambda *_: True)
    assert flushed == [(0, SYNC_BYTES), (SYNC_BYTES, 1), (0, 7)]
    assert order == 3 * ["file"]


@pytest.mark.parametrize("links", [True, False])
def test_a_secret_is_created_once(tmp_path, monkeypatch, links: bool) -> None:
    """It is its owner's, also where the file system has no links, and is never written over."""
    if not links:
        refusal = OSError(errno.EPERM, os.strerror(errno.EPERM))
        monkeypatch.setattr(os, "link", lambda *_: (_ for _ in ()).throw(refusal))
    path = tmp_path / "secret"
    create_secret(path, b"first")
    with pytest.raises(FileExistsError):
        create_secret(path, b"second")
    assert (path.read_bytes(), path.stat().st_mode & 0o777) == (b"first", 0o600)
    assert list(tmp_path.iterdir()) == [path]
