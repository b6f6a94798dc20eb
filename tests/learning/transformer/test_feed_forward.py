"""GELU as compiled models have it on GPUs; here Dynamo traces it for the CPU."""

from __future__ import annotations

import pytest
import torch

from dupt_swarm.learning.transformer import feed_forward
from dupt_swarm.learning.transformer.feed_forward import gelu


def test_gelu_by_a_sigmoid_is_the_same(monkeypatch: pytest.MonkeyPatch) -> None:
    """Values and gradients, far from zero too."""
    monkeypatch.setattr(feed_forward, "BY_SIGMOID_ON", {"cpu"})
    torch.compiler.reset()
    operators: list[str] = []

    def backend(graph: torch.fx.GraphModule, _: object) -> torch.fx.GraphModule:
        operators.extend(str(node.target) for node in graph.graph.nodes)
        return graph

    found = []
    for function in (gelu, torch.compile(gelu, backend=backend)):
        x = torch.linspace(-30, 30, 6001, dtype=torch.float64, requires_grad=True)
        y = function(x)
        y.sum().backward()
        assert x.grad is not None
        found.append((y.detach(), x.grad))
    assert any("sigmoid" in name for name in operators)
    assert not any("gelu" in name for name in operators)
    torch.testing.assert_close(found[0], found[1])
