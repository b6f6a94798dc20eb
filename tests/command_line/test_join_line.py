"""The command that joins a swarm."""

from dupt_swarm.command_line.join_line import join_line
from tests.support.invented import ADDRESS


def test_join_line() -> None:
    """The line names each address, and is safe to paste into a shell."""
    line = f"dupt-peer join --initial-peers {ADDRESS} --swarm run-0 --corpus PATH"
    assert join_line([ADDRESS], "run-0") == line
    assert "--initial-peers a --initial-peers 'b;rm' --swarm" in join_line(["a", "b;rm"], "run-0")
    assert "--swarm run-0 --invitation TOKEN --corpus" in join_line(["a"], "run-0", by_invitation=True)
