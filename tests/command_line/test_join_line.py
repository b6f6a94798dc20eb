import shlex

from dupt_swarm.command_line.join_line import join_line
from tests.support.invented import ADDRESS, MANIFEST


def test_nothing_in_an_address_is_for_the_shell() -> None:
    """Whoever pastes the line runs one program, with the address as it is and the swarm that is meant."""
    evil = "/dns/$(reboot);reboot/tcp/1/p2p/Qm x"
    words = shlex.split(join_line([evil, ADDRESS], MANIFEST), posix=True)
    assert words[:6] == ["dupt-peer", "join", "--initial-peers", evil, "--initial-peers", ADDRESS]
    assert words[6:] == ["--swarm", MANIFEST.swarm_id, "--corpus", "PATH"]
