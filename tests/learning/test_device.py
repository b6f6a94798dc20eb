"""The best device, its precision, and compilation."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch import nn

from dupt_swarm.errors import DeviceError
from dupt_swarm.learning import device as device_module
from dupt_swarm.learning.device import (
    Arriving,
    as_written,
    autocast,
    choose_device,
    choose_devices,
    free_memory,
    in_short,
    is_out_of_memory,
    limit_memory,
    maybe_compile,
    needing_memory,
    product_dtype,
)
from dupt_swarm.learning.strategies.flat import standing_at

CPU = torch.device("cpu")


def pretend(monkeypatch: pytest.MonkeyPatch, *, cuda: bool, mps: bool) -> None:
    monkeypatch.setattr(torch.cuda, "is_available", lambda: cuda)
    monkeypatch.setattr(torch.cuda, "device_count", lambda: int(cuda))
    monkeypatch.setattr(device_module, "_try_out", lambda _: None)
    monkeypatch.setattr(torch.backends.mps, "is_available", lambda: mps)


@pytest.mark.parametrize(
    ("cuda", "mps", "expected"), [(True, True, "cuda"), (False, True, "mps"), (False, False, "cpu")]
)
def test_auto_takes_the_best_device(
    monkeypatch: pytest.MonkeyPatch, cuda: bool, mps: bool, expected: str
) -> None:
    """Auto is CUDA, else an Apple GPU, else the CPU; the CPU can always be asked for."""
    pretend(monkeypatch, cuda=cuda, mps=mps)
    assert expected == choose_device().type
    assert choose_device("cpu") == CPU


@pytest.mark.parametrize("name", ["cuda", "cuda:1", "mps", "meta", "gpu"])
def test_a_missing_device_is_named_with_a_remedy(monkeypatch: pytest.MonkeyPatch, name: str) -> None:
    """A device that is not there, or that nobody knows, gives an error with its name and what to use."""
    pretend(monkeypatch, cuda=False, mps=False)
    with pytest.raises(DeviceError, match=rf"`{name}`.*auto"):
        choose_device(name)


def test_the_second_gpu_needs_two(monkeypatch: pytest.MonkeyPatch) -> None:
    """With one GPU, cuda:0 exists and cuda:1 does not."""
    pretend(monkeypatch, cuda=True, mps=False)
    assert torch.device("cuda:0") == choose_device("cuda:0")
    with pytest.raises(DeviceError, match="sees 1 CUDA"):
        choose_device("cuda:1")


def test_a_gpu_that_cannot_be_used_is_named(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """Where the driver knows a card that PyTorch does not, auto is the CPU, and says what to do."""
    pretend(monkeypatch, cuda=False, mps=False)
    monkeypatch.setattr(device_module, "card_of_driver", lambda: "NVIDIA GeForce RTX 3060")
    assert choose_device() == CPU
    assert "RTX 3060" in caplog.text and "update the driver" in caplog.text
    caplog.clear()
    assert choose_device("cpu") == CPU
    assert not caplog.text


def test_a_card_without_kernels_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    """A GPU that PyTorch sees and has no kernels for is found out before anything begins.

    There is no GPU here: the kernel fails as it does on a CPU build, whose calls have no such device.
    """
    try_out = device_module._try_out
    pretend(monkeypatch, cuda=True, mps=False)
    monkeypatch.setattr(device_module, "_try_out", try_out)
    monkeypatch.setattr(torch.cuda, "set_device", lambda _: None)

    def fail(*_: object, **__: object) -> None:
        raise RuntimeError("CUDA error: no kernel image is available for execution on the device\nCompile")

    monkeypatch.setattr(torch, "ones", fail)
    with pytest.raises(DeviceError, match=r"no kernel image is available.*install a build of PyTorch"):
        choose_device()


@pytest.mark.parametrize(("has_bf16", "expected"), [(True, torch.bfloat16), (False, torch.float32)])
def test_products_are_in_bf16_where_the_hardware_is(
    monkeypatch: pytest.MonkeyPatch, has_bf16: bool, expected: torch.dtype
) -> None:
    """On a CPU with bf16 instructions products are bf16, on another fp32; parameters are always fp32."""
    monkeypatch.setattr(device_module, "_cpu_has_bf16", lambda: has_bf16)
    layer = nn.Linear(4, 4)
    with autocast(CPU):
        assert expected == layer(torch.ones(1, 4)).dtype
    assert torch.float32 == layer.weight.dtype


@pytest.mark.parametrize(
    ("has_bf16", "capability", "expected"),
    [
        (True, (8, 6), torch.bfloat16),
        (False, (7, 5), torch.float16),
        (False, (7, 0), torch.float16),
        (False, (6, 1), torch.float32),
    ],
)
def test_nvidias_cards_before_ampere_compute_in_fp16(
    monkeypatch: pytest.MonkeyPatch, has_bf16: bool, capability: tuple[int, int], expected: torch.dtype
) -> None:
    """Volta and Turing have tensor cores for it; what came before is slower in it than in fp32."""
    monkeypatch.setattr("torch.cuda.is_bf16_supported", lambda **_: has_bf16)
    monkeypatch.setattr("torch.cuda.get_device_capability", lambda _: capability)
    assert product_dtype(torch.device("cuda")) is expected


def test_apple_gpus_compute_in_fp32() -> None:
    """There is no autocast on MPS, least of all fp16."""
    with autocast(torch.device("mps")):
        assert not torch.is_autocast_enabled("cpu")


@pytest.mark.parametrize(
    ("name", "triton", "flag", "expected"),
    [
        ("cpu", True, None, False),
        ("cpu", True, True, True),
        ("cuda", True, None, True),
        ("cuda", False, None, False),
        ("cuda", True, False, False),
    ],
)
def test_cuda_compiles_unless_told_otherwise(
    monkeypatch: pytest.MonkeyPatch, name: str, triton: bool, flag: bool | None, expected: bool
) -> None:
    """By default models are compiled on CUDA where Triton works, elsewhere only when asked for."""
    monkeypatch.setattr(device_module, "_triton_works", lambda: triton)
    compiled: list[tuple[nn.Module, dict[str, bool]]] = []
    model = nn.Linear(2, 2)
    monkeypatch.setattr(nn.Module, "compile", lambda self, **how: compiled.append((self, how)))
    maybe_compile(model, torch.device(name), flag)
    assert ([(model, {"dynamic": False})] if expected else []) == compiled


def test_compiling_keeps_the_names() -> None:
    """A compiled model has the parameter names of the model as written."""
    model = nn.Linear(2, 2)
    maybe_compile(model, CPU, flag=True)
    assert list(model.state_dict()) == ["weight", "bias"]


class Doubling(nn.Linear):
    def forward(self, input: torch.Tensor) -> torch.Tensor:
        return 2 * super().forward(input)


def test_a_compiled_model_as_it_was_written() -> None:
    """For batches of another shape nothing is compiled again; its values are those of the parameters then."""
    model = Doubling(2, 2)  # PyTorch's own modules are not compiled by themselves
    compiled: list[torch.Size] = []

    def backend(graph: torch.fx.GraphModule, inputs: list[torch.Tensor]) -> Any:
        compiled.append(inputs[-1].shape)
        return graph

    model.compile(backend=backend)
    model(torch.ones(3, 2))
    assert len(compiled) == 1
    vector = torch.zeros(6)
    with as_written(model), standing_at(vector, list(model.parameters())), torch.no_grad():
        assert torch.equal(model(torch.ones(5, 2)), torch.zeros(5, 2))
    assert len(compiled) == 1
    assert not torch.equal(model(torch.ones(3, 2)), torch.zeros(3, 2))
    assert len(compiled) == 1


def test_a_number_of_the_cpu_is_here_at_once() -> None:
    """There is nothing to wait for where nothing lags behind."""
    arriving = Arriving(torch.tensor(2.5))
    assert arriving.here
    assert arriving.number == 2.5


def test_a_limit_is_for_pytorch(monkeypatch: pytest.MonkeyPatch) -> None:
    """On a GPU alone; PyTorch is asked as it is, but for the driver, which is made up."""
    told: list[Any] = []
    monkeypatch.setattr("torch.cuda.memory._lazy_init", lambda: None)
    monkeypatch.setattr("torch._C._cuda_setMemoryFraction", lambda *given: told.append(given), raising=False)
    first, second = torch.device("cuda"), torch.device("cuda:1")
    for device, part in ((CPU, 0.5), (first, 1.0), (first, 0.5), (second, 0.25)):
        limit_memory(device, part)
    assert told == [(0.5, 0), (0.25, 1)]


def test_memory_that_is_not_there_is_named() -> None:
    """Whatever needs it, the optimizer's first step or a state that arrives: an error with a remedy."""
    with (
        pytest.raises(DeviceError, match=r"cpu: out of memory .*2\.00 GiB.*use a larger device"),
        needing_memory(CPU),
    ):
        raise torch.OutOfMemoryError("CUDA out of memory. Tried to allocate 2.00 GiB\n" + 300 * "x")
    with pytest.raises(RuntimeError, match="something else"), needing_memory(CPU):
        raise RuntimeError("something else")


@pytest.mark.parametrize("kind", ["cuda", "mps"])
def test_what_is_kept_for_later_is_given_back(monkeypatch: pytest.MonkeyPatch, kind: str) -> None:
    """To whichever GPU it is of; the calls are noted, as there is none here."""
    emptied: list[str] = []
    monkeypatch.setattr(torch.cuda, "empty_cache", lambda: emptied.append("cuda"))
    monkeypatch.setattr(torch.mps, "empty_cache", lambda: emptied.append("mps"))
    free_memory(torch.device(kind))
    free_memory(CPU)
    assert emptied == [kind]


@pytest.mark.parametrize("library", ["cublas", "hipblas"])
def test_libraries_lack_memory_too(library: str) -> None:
    """Their handle is made in the first product, when the card is full already."""
    assert is_out_of_memory(
        RuntimeError(f"CUDA error: {library.upper()}_STATUS_ALLOC_FAILED when calling `{library}Create`")
    )
    assert not is_out_of_memory(RuntimeError("CUDA error: CUBLAS_STATUS_EXECUTION_FAILED"))


@pytest.fixture
def three_gpus(monkeypatch: pytest.MonkeyPatch) -> None:
    """As far as their names go."""
    pretend(monkeypatch, cuda=True, mps=False)
    monkeypatch.setattr(torch.cuda, "device_count", lambda: 3)
    free = {0: 5, 1: 70, 2: 70}
    monkeypatch.setattr(device_module, "free_bytes", lambda device: free[device.index])


@pytest.mark.usefixtures("three_gpus")
@pytest.mark.parametrize(
    ("name", "expected"),
    [
        ("auto", "cuda:1"),
        ("cuda", "cuda:0,1,2"),
        ("cuda:2", "cuda:2"),
        ("cuda:2,0", "cuda:2,0"),
        ("cuda:0,cuda:2", "cuda:0,2"),
        ("cuda,cuda:1", "cuda:0,1"),
        ("cpu", "cpu"),
        ("cpu,cpu", "cpu,cpu"),
    ],
)
def test_several_gpus(name: str, expected: str) -> None:
    """Auto is the freest, cuda all, and a list those; what they are called in short is understood again."""
    devices = choose_devices(name)
    assert in_short(devices) == expected
    assert choose_devices(expected) == devices


@pytest.mark.usefixtures("three_gpus")
@pytest.mark.parametrize(
    ("name", "expected"),
    [
        ("cuda:0,3", "no device `cuda:3`: PyTorch sees 3"),
        ("cuda:1,1", "name one twice"),
        ("cuda,cuda:0", "name one twice"),
        ("cuda:0,cpu", "cannot compute together"),
        ("cpu,cuda:0", "cannot compute together"),
        ("cuda:0,", "unknown device ``"),
        (",", "unknown device ``"),
    ],
)
def test_devices_that_cannot_compute_together(name: str, expected: str) -> None:
    """Each with what to use instead."""
    with pytest.raises(DeviceError, match=expected):
        choose_devices(name)


def test_one_gpu_is_one_device(monkeypatch: pytest.MonkeyPatch) -> None:
    """As always: PyTorch's name of it has no number."""
    pretend(monkeypatch, cuda=True, mps=False)
    assert in_short(choose_devices("auto")) == in_short(choose_devices("cuda")) == "cuda"
