"""Which device trains, in which precision, and whether the model is compiled for it."""

from __future__ import annotations

import importlib.util
import os
import shutil
from contextlib import AbstractContextManager, nullcontext
from functools import cache

import torch
from torch import nn

from dupt_swarm.errors import DeviceError


def choose_device(name: str = "auto") -> torch.device:
    """The device called ``name``; for "auto" the best there is: cuda, else mps, else cpu.

    Raises:
        DeviceError: the name is unknown, or this machine has no such device.
    """
    if name == "auto":
        name = "cuda" if torch.cuda.is_available() else "mps" if torch.backends.mps.is_available() else "cpu"
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


def autocast(device: torch.device) -> AbstractContextManager[object]:
    """Inside, matrix products run in bf16 where the hardware supports it, everything else in fp32.

    Never fp16, which needs loss scaling; parameters, gradients and sums stay fp32 (Kalamkar et al. 2019).
    """
    dtype = product_dtype(device)
    return nullcontext() if dtype is torch.float32 else torch.autocast(device.type, dtype)


def product_dtype(device: torch.device) -> torch.dtype:
    """In which precision matrix products are fastest: bf16 where the hardware supports it, else fp32."""
    if device.type == "cuda":
        has_bf16 = torch.cuda.is_bf16_supported(including_emulation=False)
    else:
        has_bf16 = device.type == "cpu" and _cpu_has_bf16()
    return torch.bfloat16 if has_bf16 else torch.float32


def maybe_compile(model: nn.Module, device: torch.device, flag: bool | None = None) -> bool:
    """Compile ``model`` in place if ``flag`` says so; None: on CUDA, if a C compiler is there for Triton.

    Compilation happens in the first step. Names of parameters and of the state stay as they are.

    Returns:
        Whether it is compiled.
    """
    if flag is None:
        flag = device.type == "cuda" and _triton_works()
    if flag:
        model.compile()
    return flag


def as_written(compiled: bool) -> AbstractContextManager[object]:
    """Inside, a model that is ``compiled`` runs as it was written.

    For batches of one more shape, and for evaluation, it would be compiled anew, which takes up to a minute.
    """
    return torch.compiler.set_stance("force_eager") if compiled else nullcontext()


def wait_for(device: torch.device) -> None:
    """Wait until ``device`` has done what it was told to: calls return before that, but on a CPU."""
    if device.type != "cpu":
        torch.accelerator.synchronize(device)


@cache
def _cpu_has_bf16() -> bool:
    # A private name (every CPU with AMX has it too); a PyTorch without it trains in fp32, slower but right.
    supported = getattr(torch.cpu, "_is_avx512_bf16_supported", None)
    return supported is not None and bool(supported())


def _triton_works() -> bool:
    compilers = (os.environ.get("CC", "cc"), "gcc", "clang")
    return importlib.util.find_spec("triton") is not None and any(map(shutil.which, compilers))


def is_out_of_memory(error: BaseException) -> bool:
    """Whether ``error`` says that a device or the machine has no memory left."""
    words = ("out of memory", "can't allocate memory", "not enough memory")
    return isinstance(error, MemoryError | torch.OutOfMemoryError) or any(
        word in str(error).lower() for word in words
    )
