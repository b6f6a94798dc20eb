"""Offloading: moments in the main memory, so that a card holds 8 bytes per weight instead of 16.

ZeRO-Offload (Ren et al. 2021, arXiv:2101.06840) has the CPU update what is there. Here moments visit the card
instead, which computes as it would otherwise, Muon's products too, for which a CPU is too slow.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import torch
from torch import Tensor, nn, optim

from dupt_swarm.learning.device import on
from dupt_swarm.learning.inner.muon import JointOptimizer, parts_of

VALUES_AT_ONCE = 1 << 25  # whose moments visit the device together, or those of one parameter


class Offloaded:
    """Has the moments of an optimizer in the main memory, from its first update on."""

    def __init__(self, inner: optim.Optimizer) -> None:
        """``inner``: as `build_inner` made it."""
        self._inner = inner
        self._homes: dict[tuple[nn.Parameter, str], Tensor] = {}

    def step(self) -> None:
        """As the optimizer's own `step`; gradients are forgotten, one after another."""
        for part in parts_of(self._inner):
            trained = [parameter for parameter in _parameters(part) if parameter.grad is not None]
            gradients = {parameter: parameter.grad for parameter in trained}
            for parameter in trained:
                parameter.grad = None  # an optimizer passes over those that have none
            for some in _together(trained):
                for parameter, name, value in _moments(part, some):
                    part.state[parameter][name] = on(parameter.device, value)
                for parameter in some:
                    parameter.grad = gradients.pop(parameter)
                part.step()
                for parameter in some:
                    parameter.grad = None
                for parameter, name, value in _moments(part, some):
                    home, pinned = self._home(parameter, name), parameter.device.type == "cuda"
                    part.state[parameter][name] = home.copy_(value, non_blocking=pinned)

    def load_state_dict(self, state_dict: Mapping[str, Any]) -> None:
        """Go on after the optimizer's `state_dict`; its own way would have all moments on the device."""
        parts, joint = parts_of(self._inner), isinstance(self._inner, JointOptimizer)
        saved = state_dict["parts"] if joint else [state_dict]
        moments, others = zip(*map(_split, parts, saved), strict=True)
        self._inner.load_state_dict({"parts": others} if joint else others[0])
        for part, of_part in zip(parts, moments, strict=True):
            for parameter, values in of_part.items():
                part.state[parameter].update(values)

    def _home(self, parameter: nn.Parameter, name: str) -> Tensor:
        """Where it lies: page-locked beside a GPU, which copies by itself and waits for nobody."""
        if (parameter, name) not in self._homes:
            self._homes[parameter, name] = torch.empty(
                parameter.shape, dtype=parameter.dtype, pin_memory=parameter.device.type == "cuda"
            )
        return self._homes[parameter, name]


def _parameters(part: optim.Optimizer) -> list[nn.Parameter]:
    return [parameter for group in part.param_groups for parameter in group["params"]]


def _is_moment(value: object, parameter: nn.Parameter) -> bool:
    """Whether it is as large as the parameter; anything else is little."""
    return isinstance(value, Tensor) and value.shape == parameter.shape and value.ndim > 0


def _moments(
    part: optim.Optimizer, parameters: Sequence[nn.Parameter]
) -> Iterator[tuple[nn.Parameter, str, Tensor]]:
    for parameter in parameters:
        for name, value in list(part.state.get(parameter, {}).items()):
            if _is_moment(value, parameter):
                yield parameter, name, value


def _split(
    part: optim.Optimizer, saved: Mapping[str, Any]
) -> tuple[dict[nn.Parameter, dict[str, Tensor]], dict[str, Any]]:
    """The moments of each parameter in what was saved of an optimizer, and that without them."""
    numbers = [number for group in saved["param_groups"] for number in group["params"]]
    moments: dict[nn.Parameter, dict[str, Tensor]] = {}
    others: dict[int, dict[str, Any]] = {}
    for number, parameter in zip(numbers, _parameters(part), strict=True):
        state = saved["state"].get(number, {})
        moments[parameter] = {name: value for name, value in state.items() if _is_moment(value, parameter)}
        others[number] = {name: state[name] for name in state if name not in moments[parameter]}
    return moments, {**saved, "state": others}


def _together(parameters: Sequence[nn.Parameter]) -> Iterator[list[nn.Parameter]]:
    """Those of one shape one after another, so that one kernel can update several."""
    some: list[nn.Parameter] = []
    for parameter in sorted(parameters, key=lambda each: tuple(each.shape)):
        if some and sum(each.numel() for each in [*some, parameter]) > VALUES_AT_ONCE:
            yield some
            some = []
        some.append(parameter)
    if some:
        yield some
