"""hivemind's libp2p daemon without its packing (Linux on x86-64 only; elsewhere it stays as it is).

hivemind brings ``p2pd`` packed by UPX: each start unpacks 29 MB, an eighth of a second of a core, and the
tests start hundreds. So its first start, stopped at the first system call of the program proper, is written
down as the executable that it was before it was packed; the tests start that.

Nor does that one sort 79,009 networks of IPv6 into a tree as it begins, another third of a second: the tree
is for a limit on relays per network of IPv6, and the tests talk over IPv4. The end of that loop,
``cmp $79009, %rdx``, is the one thing that is changed, and only in the version in which it was found.

What UPX leaves in memory is the file's segments at the addresses that its own program headers name. See the
ELF-64 object file format, version 1.5, and ptrace(2).
"""

from __future__ import annotations

import contextlib
import ctypes
import hashlib
import importlib
import importlib.util
import os
import platform
import signal
import struct
import sys
from pathlib import Path
from typing import BinaryIO

ENVIRONMENT = "DUPT_TEST_P2PD"  # where it is; inherited by pytest's workers and by whatever they start
PTRACE_TRACEME, PTRACE_GETREGS, PTRACE_SYSCALL = 0, 12, 24
REGISTERS, ORIG_RAX = 27, 15  # of `struct user_regs_struct`
ARCH_PRCTL = 158  # Go's runtime begins with it, and UPX does without
BASE = 0x400000  # where Go's linker puts a program
ELF_HEADER, PROGRAM_HEADER = struct.Struct("<16sHHIQQQIHHHHHH"), struct.Struct("<IIQQQQQQ")
PT_LOAD = 1
KNOWN = "42f8f48e62583b97cdba3c31439c08029fb2b9fc506b5bdd82c46b7cc1d279d8"  # SHA-256, packed
NETWORKS = (0x775508, bytes.fromhex("4881faa1340100"), bytes.fromhex("4881fa00000000"))


def unpack(packed: Path, target: Path) -> bool:
    """Write the program that ``packed`` unpacks itself to; False where that cannot be done."""
    original = packed.read_bytes()
    if (sys.platform, platform.machine()) != ("linux", "x86_64") or b"UPX!" not in original[:512]:
        return False
    pid = os.fork()
    if pid == 0:
        try:
            _trace(PTRACE_TRACEME, 0)
            os.execv(packed, [str(packed), "--help"])
        finally:
            os._exit(1)  # where tracing is not allowed
    try:
        if not _begins(pid):
            return False
        image = _image(pid)
    finally:
        with contextlib.suppress(ProcessLookupError):
            os.kill(pid, signal.SIGKILL)
            os.waitpid(pid, 0)
    if hashlib.sha256(original).hexdigest() == KNOWN:
        image = _without_networks(image)
    new = target.with_name(f"{target.name}.{os.getpid()}")
    new.write_bytes(image)
    new.chmod(0o755)
    new.replace(target)  # another run of the tests may be executing the old one
    return True


def unpack_for_tests(folder: Path) -> None:
    """Unpack hivemind's into ``folder`` and let `use_unpacked` find it."""
    hivemind = importlib.util.find_spec("hivemind")  # without importing it
    assert hivemind is not None
    [package] = hivemind.submodule_search_locations or []
    if unpack(Path(package, "hivemind_cli", "p2pd"), folder / "p2pd"):
        os.environ[ENVIRONMENT] = str(folder / "p2pd")


def use_unpacked() -> None:
    """Have hivemind start the unpacked one in this process and its forks, if there is one."""
    if found := os.environ.get(ENVIRONMENT):
        module = importlib.import_module("hivemind.p2p.p2p_daemon")
        vars(module)["path"] = lambda *_: contextlib.nullcontext(Path(found))


def _trace(request: int, pid: int, data: int = 0) -> None:
    ptrace = ctypes.CDLL(None, use_errno=True).ptrace
    ptrace.argtypes = [ctypes.c_long, ctypes.c_long, ctypes.c_void_p, ctypes.c_void_p]
    if ptrace(request, pid, None, data) < 0:
        raise OSError(ctypes.get_errno(), "ptrace")


def _begins(pid: int) -> bool:
    """Let it run until the program proper makes its first system call; False if it ends before."""
    registers = (ctypes.c_ulonglong * REGISTERS)()
    while os.WIFSTOPPED(os.waitpid(pid, 0)[1]):
        _trace(PTRACE_GETREGS, pid, ctypes.addressof(registers))
        if registers[ORIG_RAX] == ARCH_PRCTL:
            return True
        _trace(PTRACE_SYSCALL, pid)
    return False


def _image(pid: int) -> bytes:
    """The executable file whose segments this process has in its memory."""
    with Path(f"/proc/{pid}/mem").open("rb") as memory:
        header = ELF_HEADER.unpack(_read(memory, BASE, ELF_HEADER.size))
        table, count = header[5], header[10]
        image = bytearray()
        for number in range(count):
            entry = _read(memory, BASE + table + number * PROGRAM_HEADER.size, PROGRAM_HEADER.size)
            kind, _, offset, address, _, size, _, _ = PROGRAM_HEADER.unpack(entry)
            if kind == PT_LOAD:
                image.extend(bytes(max(0, offset + size - len(image))))
                image[offset : offset + size] = _read(memory, address, size)
    without_sections = (*header[:6], 0, *header[7:12], 0, 0)
    image[: ELF_HEADER.size] = ELF_HEADER.pack(*without_sections)
    return bytes(image)


def _without_networks(image: bytes) -> bytes:
    """The executable with a loop over none of the networks."""
    offset, old, new = NETWORKS
    assert image[offset:].startswith(old)
    return image[:offset] + new + image[offset + len(old) :]


def _read(memory: BinaryIO, address: int, size: int) -> bytes:
    memory.seek(address)
    return memory.read(size)
