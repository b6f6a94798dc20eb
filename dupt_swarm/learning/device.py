"""Which device trains, in which precision, and whether the model is compiled for it."""

from __future__ import annotations

import importlib.util
import logging
import os
import re
import shutil
import sysconfig
from collections.abc import Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager, nullcontext
from functools import cache
from pathlib import Path

import torch
from torch import Tensor, nn

from dupt_swarm.errors import DeviceError
from dupt_swarm.learning.driver import card_of_driver, free_bytes

REASON_LENGTH_MAX = 200
NOT_COMPILED = "the model could not be compiled, and runs slower as written"
FAST_FP16 = (7, 0)  # compute capability; what Triton needs, too
FP32_ONLY = set[torch.device]()  # where fp16 has turned out not to suffice for what is trained

logger = logging.getLogger(__name__)


def choose_device(name: str = "auto") -> torch.device:
    """The device called ``name``; for "auto" the best there is: cuda, else mps, else cpu.

    Raises:
        DeviceError: the name is unknown, or this machine has no such device.
    """
    if name == "auto":
        name = "cuda" if torch.cuda.is_available() else "mps" if torch.backends.mps.is_available() else "cpu"
        if name == "cpu" and (card := card_of_driver()):
            logger.warning(
                "computing on the CPU although there is a GPU (%s): PyTorch %s, built for %s, cannot use it; "
                "update the driver, or install another build (https://pytorch.org/get-started)",
                *(card, torch.__version__, f"CUDA {torch.version.cuda}" if torch.version.cuda else "CPUs"),
            )
    device = _known(name)
    if device.type == "cuda":
        _try_out(device)
    return device


def choose_devices(name: str = "auto") -> list[torch.device]:
    """The devices that compute one oracle's steps together; the first is the trainer's.

    "cuda" is all GPUs, "cuda:0,1" are some; "auto" is one, of several GPUs the freest.

    Raises:
        DeviceError: as of `choose_device`; or they cannot compute together.
    """
    count = torch.cuda.device_count() if torch.cuda.is_available() else 0
    if name == "auto" and count > 1:
        name = f"cuda:{max(range(count), key=lambda index: free_bytes(torch.device('cuda', index)))}"
        logger.info("of %d GPUs this oracle takes one, %s; device `cuda` takes all", count, name)
    if name == "cuda" and count > 1:
        name = f"cuda:{','.join(map(str, range(count)))}"
    if "," not in name:
        return [choose_device(name)]
    first, *others = several_devices(name)
    return [choose_device(str(first)), *others]


def several_devices(name: str) -> list[torch.device]:
    """Those in a list such as "cuda:0,1", or the only one; none is tried out.

    Raises:
        DeviceError: one is not there, or they cannot compute together.
    """
    short = re.fullmatch(r"cuda:([\d,]*\d)", name)
    named = [f"cuda:{number}" for number in short[1].split(",")] if short else name.split(",")
    devices = [_known(each) for each in named]
    if len({device.type for device in devices}) > 1 or (len(devices) > 1 and devices[0].type == "mps"):
        raise DeviceError(f"devices `{name}` cannot compute together; choose CUDA GPUs, as in cuda:0,1")
    if devices[0].type == "cuda" and len(devices) > 1:
        devices = [torch.device("cuda", device.index or 0) for device in devices]
        if len(set(devices)) < len(devices):
            raise DeviceError(f"devices `{name}` name one twice; name each once")
    return devices


def in_short(devices: Sequence[torch.device]) -> str:
    """What `choose_devices` takes for them."""
    if devices[0].type == "cuda" and len(devices) > 1:
        return "cuda:" + ",".join(str(device.index) for device in devices)
    return ",".join(map(str, devices))


def _known(name: str) -> torch.device:
    """The device called ``name``.

    Raises:
        DeviceError: the name is unknown, or this machine has no such device.
    """
    try:
        device = torch.device(name)
    except RuntimeError as error:
        raise DeviceError(f"unknown device `{name}`; choose auto, cpu, cuda, cuda:1 … or mps") from error
    if device.type == "cuda" and (device.index or 0) >= torch.cuda.device_count():
        raise DeviceError(
            f"no device `{name}`: PyTorch sees {torch.cuda.device_count()} CUDA GPUs; check `nvidia-smi` and "
            "that PyTorch is a CUDA build, or use device auto"
        )
    if device.type == "mps" and not torch.backends.mps.is_available():
        raise DeviceError(f"no device `{name}`: it needs a Mac with an Apple GPU; use device auto")
    if device.type not in ("cpu", "cuda", "mps"):
        raise DeviceError(f"device `{name}` is not supported; choose auto, cpu, cuda, cuda:1 … or mps")
    return device


def _try_out(device: torch.device) -> None:
    """Make it this process's GPU, for PyTorch's calls that name none, and run one kernel.

    Raises:
        DeviceError: PyTorch has no kernels for it, or cannot use it.
    """
    try:
        torch.cuda.set_device(device.index or 0)
        torch.ones(1, device=device).add(1).item()
    except RuntimeError as error:
        reason = str(error).strip().splitlines()[0]  # what follows is about debugging CUDA
        raise DeviceError(
            f"PyTorch {torch.__version__} cannot compute on `{device}`: {reason}; install a build of PyTorch "
            "for this card (https://pytorch.org/get-started), free the card, or use device cpu"
        ) from error


def autocast(device: torch.device, dtype: torch.dtype | None = None) -> AbstractContextManager[object]:
    """Inside, matrix products run in ``dtype``, everything else in fp32; None: in `product_dtype`.

    Parameters, gradients and sums stay fp32 (Kalamkar et al. 2019). With fp16 a loss has to be scaled before
    its gradients are computed, see `loss_scaler`.
    """
    dtype = dtype or product_dtype(device)
    return nullcontext() if dtype is torch.float32 else torch.autocast(device.type, dtype)


def product_dtype(device: torch.device) -> torch.dtype:
    """In which precision matrix products are fastest: bf16 where the hardware supports it, else fp32.

    On NVIDIA's cards that compute fast in fp16, but not in bf16 (Volta, Turing), fp16.
    """
    if device.type == "cuda":
        if torch.cuda.is_bf16_supported(including_emulation=False):
            return torch.bfloat16
        has_fp16 = torch.cuda.get_device_capability(device) >= FAST_FP16
        return torch.float16 if has_fp16 and device not in FP32_ONLY else torch.float32
    return torch.bfloat16 if device.type == "cpu" and _cpu_has_bf16() else torch.float32


def use_fp32(device: torch.device) -> None:
    """From now on products run in fp32 on ``device``, where they have run in fp16."""
    FP32_ONLY.add(device)


def loss_scaler(device: torch.device) -> torch.amp.GradScaler:
    """Scales losses for `autocast` on ``device``, where that is fp16; elsewhere it does nothing.

    Gradients below 6e-8, the least that fp16 has, would be lost (Micikevicius et al. 2018).
    """
    return torch.amp.GradScaler(device.type, enabled=product_dtype(device) is torch.float16)


def maybe_compile(model: nn.Module, device: torch.device, flag: bool | None = None) -> bool:
    """Compile ``model`` in place if ``flag`` says so; None: on CUDA, if Triton and a C compiler work there.

    Compilation happens in the first step, for the shapes of that, and anew for others. Names of parameters
    and of the state stay as they are.

    Returns:
        Whether it is compiled.
    """
    if flag is None:
        flag = device.type == "cuda" and _triton_works()
    if flag:
        # Dynamo of PyTorch 2.11 fails on the loss where it takes sizes for variable.
        model.compile(dynamic=False)
    return flag


def run_as_written(model: nn.Module) -> bool:
    """Take back what `maybe_compile` did; whether it had done anything."""
    compiled, model._compiled_call_impl = model._compiled_call_impl, None
    return compiled is not None


def as_written(model: nn.Module) -> AbstractContextManager[object]:
    """Inside, ``model`` runs as it was written, compiled or not.

    For batches of one more shape, and for evaluation, it would be compiled anew, which takes up to a minute.
    """
    compiled = model._compiled_call_impl is not None
    return torch.compiler.set_stance("force_eager") if compiled else nullcontext()


def wait_for(device: torch.device) -> None:
    """Wait until ``device`` has done what it was told to: calls return before that, but on a CPU."""
    if device.type != "cpu":
        torch.accelerator.synchronize(device)


def on(device: torch.device, values: Tensor) -> Tensor:
    """``values`` on ``device``; to a GPU from pinned memory, and meanwhile the next can be prepared."""
    if values.device == device:
        return values
    if device.type == "cuda" and not values.is_pinned():
        values = values.pin_memory()
    return values.to(device, non_blocking=device.type == "cuda")


def free_memory(device: torch.device) -> None:
    """Give back to ``device`` what PyTorch keeps of it for later."""
    if device.type == "cuda":
        torch.cuda.empty_cache()
    elif device.type == "mps":
        torch.mps.empty_cache()


def limit_memory(device: torch.device, part: float) -> None:
    """From now on PyTorch takes this part of all memory of ``device`` at most, if that is an NVIDIA GPU."""
    if device.type == "cuda" and part < 1:
        torch.cuda.set_per_process_memory_fraction(part, device.index or 0)


def halved(sequences: int, device: torch.device, doing: str) -> int:
    """How many sequences at once to try next, as there was no memory ``doing`` so many.

    Raises:
        DeviceError: it was one.
    """
    free_memory(device)
    if sequences == 1:
        raise DeviceError(
            f"{device}: out of memory {doing} one sequence; close what else uses it, or use a larger device"
        )
    fewer = sequences // 2
    logger.warning(
        "out of memory: %s %d sequences at once from now on (a batch size of %d avoids this)",
        *(doing, fewer, fewer),
    )
    return fewer


@contextmanager
def needing_memory(device: torch.device) -> Iterator[None]:
    """Inside, who computes on ``device`` can do nothing about memory that is not there.

    Raises:
        DeviceError: it did not suffice.
    """
    try:
        yield
    except (MemoryError, RuntimeError) as error:
        if not is_out_of_memory(error):
            raise
        raise DeviceError(
            f"{device}: out of memory ({shortly(error)}); close what else uses it, or use a larger device; "
            "`dupt-peer check` tells what a swarm's model takes"
        ) from error


class Arriving:
    """A number on its way from a device, which goes on computing meanwhile."""

    def __init__(self, value: Tensor) -> None:
        """``value``: 0-d."""
        self._value = value
        self._sent: torch.cuda.Event | None = None
        if value.device.type == "cuda":
            self._value = torch.empty((), dtype=value.dtype, pin_memory=True).copy_(value, non_blocking=True)
            self._sent = torch.cuda.Event()  # type: ignore[no-untyped-call]
            self._sent.record(torch.cuda.current_stream(value.device))

    @property
    def here(self) -> bool:
        """Whether `number` need not wait."""
        return self._sent is None or bool(self._sent.query())  # type: ignore[no-untyped-call]

    @property
    def number(self) -> float:
        """Its value, as soon as it is here."""
        if self._sent is not None:
            self._sent.synchronize()
        return float(self._value)


@cache
def _cpu_has_bf16() -> bool:
    # A private name (every CPU with AMX has it too); a PyTorch without it trains in fp32, slower but right.
    supported = getattr(torch.cpu, "_is_avx512_bf16_supported", None)
    return supported is not None and bool(supported())


def _triton_works() -> bool:
    """Whether it can compile for the cards that are there: it builds a Python module for that."""
    compilers = (os.environ.get("CC", "cc"), "gcc", "clang")
    headers = Path(sysconfig.get_path("include")) / "Python.h"
    if importlib.util.find_spec("triton") is None or not any(map(shutil.which, compilers)):
        return False
    return (
        headers.exists()
        and min(map(torch.cuda.get_device_capability, range(torch.cuda.device_count()))) >= FAST_FP16
    )


def shortly(error: BaseException) -> str:
    """The beginning of what ``error`` says, in one line: Dynamo's run to pages."""
    return " ".join(str(error).split())[:REASON_LENGTH_MAX]


def is_out_of_memory(error: BaseException) -> bool:
    """Whether ``error`` says that a device or the machine has no memory left."""
    # cuBLAS and hipBLAS have a word of their own for it.
    words = (
        *("out of memory", "can't allocate memory", "cannot allocate memory", "not enough memory"),
        "blas_status_alloc_failed",
    )
    return isinstance(error, MemoryError | torch.OutOfMemoryError) or any(
        word in str(error).lower() for word in words
    )
