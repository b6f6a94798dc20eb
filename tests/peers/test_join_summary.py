"""What `dupt-peer join --json` prints at its end."""

import json
from types import SimpleNamespace
from typing import Any

import pytest

from dupt_swarm.errors import DuptError
from dupt_swarm.learning.quality import Quality
from peers import demo
from peers.join import summarise
from tests.support.screen import status


def summary(**changed: Any) -> dict[str, Any]:
    """As others read it, by the standard: JSON has no NaN."""
    oracle: Any = SimpleNamespace(status=lambda: status(**changed))
    found: dict[str, Any] = json.loads(json.dumps(summarise(oracle), allow_nan=False))
    return found


def test_what_was_measured_and_what_was_not() -> None:
    """Null where nothing was."""
    found = summary()
    assert (found["rounds"], found["tokens_total"]) == (3, 1_234_567)
    assert (found["heldout_loss_before"], found["heldout_loss_after"]) == (None, 6.0)
    assert (found["bits_per_byte_after"], found["accuracy_after"]) == (2.5, None)


@pytest.mark.parametrize("lost", [float("nan"), float("inf")])
def test_a_loss_that_is_no_number(lost: float) -> None:
    """It is null, too; and no demo calls it learning."""
    found = summary(latest=Quality(lost, {"tokens": 10, "bytes": 40}, bits_per_byte=lost))
    assert (found["heldout_loss_after"], found["bits_per_byte_after"]) == (None, None)
    processes: Any = SimpleNamespace(finish=lambda _: (json.dumps(found), 0))
    with pytest.raises(DuptError, match="no held-out loss that is a number"):
        demo._result("manual", processes)
