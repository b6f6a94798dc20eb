"""Counts what is asked of a fake GPU. To be imported before anything that imports PyTorch.

Whatever needs a value of a tensor there (`item()`, `float()`, `bool()`, a mask) raises: on a card it would
wait for all that the card has been told.
"""

from __future__ import annotations

import ctypes
import importlib.util
import weakref
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any


def pretend(library: str) -> None:
    """From now on PyTorch has one CUDA device, with bf16; this loads PyTorch."""
    found = importlib.util.find_spec("torch")
    assert found is not None and found.origin is not None
    # Its own libraries first, and the guard before PyTorch is loaded, which asks once whether there is one.
    for name in ("libc10.so", "libtorch_cpu.so"):
        ctypes.CDLL(str(Path(found.origin).parent / "lib" / name), ctypes.RTLD_GLOBAL)
    ctypes.CDLL(library, ctypes.RTLD_GLOBAL)
    import torch
    from torch.utils._device import _device_constructors

    _device_constructors()  # what makes tensors, as it was before `empty` is replaced
    cuda: Any = torch.cuda
    cuda.is_available = lambda: True
    cuda.device_count = lambda: 1
    cuda.current_device = lambda: 0
    cuda.set_device = lambda _: None
    cuda.is_bf16_supported = lambda **_: True
    cuda.get_amp_supported_dtype = lambda: [torch.float16, torch.bfloat16]
    cuda.get_rng_state = lambda _=None: torch.zeros(16, dtype=torch.uint8)
    cuda.set_rng_state = lambda *_: None
    cuda.empty_cache = lambda: None
    cuda.Event, cuda.current_stream = Event, lambda _=None: None
    tensor: Any = torch.Tensor
    tensor.pin_memory = lambda self, *_, **__: self
    tensor.is_pinned = lambda *_, **__: True
    empty: Callable[..., Any] = torch.empty

    def unpinned(*size: Any, pin_memory: bool = False, **how: Any) -> Any:
        del pin_memory
        return empty(*size, **how)

    torch.empty = unpinned  # type: ignore[assignment]
    functional: Any = torch.nn.functional
    attention: Callable[..., Any] = functional.scaled_dot_product_attention

    def flash(q: Any, k: Any, v: Any, seen: Any = None, dropout_p: float = 0.0, **how: Any) -> Any:
        """The kernel that keeps no probabilities, as on a card; a CPU build would choose another."""
        if q.device.type != "cuda" or q.dtype != torch.bfloat16 or seen is not None:
            return attention(q, k, v, seen, dropout_p=dropout_p, **how)
        causal = how.get("is_causal", False)
        return torch.ops.aten._scaled_dot_product_flash_attention(q, k, v, dropout_p, causal)[0]

    functional.scaled_dot_product_attention = flash


class Event:
    """Has passed."""

    def __init__(self, **_: Any) -> None: ...

    def record(self, *_: Any) -> None: ...

    def synchronize(self) -> None: ...

    def query(self) -> bool:
        """Always."""
        return True


class Meter:
    """Operators, bytes copied by direction, and bytes that live on the device now and lived there at most."""

    def __init__(self) -> None:
        self.live = 0
        self._sizes: dict[int, int] = {}
        self.begin()

    def begin(self) -> None:
        """From now on."""
        self.operators, self.copied, self.peak = 0, Counter[str](), self.live

    @contextmanager
    def watching(self) -> Iterator[None]:
        """Inside, tensors are fake and counted."""
        from torch import Tensor
        from torch._subclasses.fake_tensor import FakeTensorMode
        from torch.utils._python_dispatch import TorchDispatchMode
        from torch.utils._pytree import tree_leaves

        meter = self

        class Watch(TorchDispatchMode):
            def __torch_dispatch__(self, function: Any, _: Any, args: Any = (), kwargs: Any = None) -> Any:
                result = function(*args, **(kwargs or {}))
                given = [leaf for leaf in tree_leaves((args, kwargs)) if isinstance(leaf, Tensor)]
                made = [leaf for leaf in tree_leaves(result) if isinstance(leaf, Tensor)]
                meter._note(str(function), given, made)
                return result

        with FakeTensorMode(allow_non_fake_inputs=True), Watch():
            yield

    def _note(self, function: str, given: list[Any], made: list[Any]) -> None:
        self.operators += any(tensor.device.type == "cuda" for tensor in given + made)
        if function.startswith("aten._to_copy"):
            self._copied(given[0], made[0])
        elif function.startswith("aten.copy_"):
            self._copied(given[1], given[0])
        for tensor in made:
            storage = tensor.untyped_storage()
            key, size = storage._cdata, storage.nbytes()
            if tensor.device.type == "cuda" and key not in self._sizes:
                self._sizes[key] = size
                self.live += size
                self.peak = max(self.peak, self.live)
                weakref.finalize(storage, self._freed, key)

    def _copied(self, source: Any, target: Any) -> None:
        way = source.device.type, target.device.type
        if len(set(way)) == 2:
            self.copied[" to ".join(way)] += target.numel() * target.element_size()

    def _freed(self, key: int) -> None:
        self.live -= self._sizes.pop(key)
