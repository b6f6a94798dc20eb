"""A swarm that admits by invitation, as people run one: real processes, from `new` to `revoke`."""

import itertools
import json
import stat
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from dupt_swarm.organiser.invitation import Token
from tests.support.commands import PROGRAMS, commands_of
from tests.support.programs import LISTEN, dupt_model, dupt_peer, first_peer, start, wait_for_line
from tests.support.smaller import make_smaller
from tests.support.waiting import wait_until


@pytest.fixture(scope="module")
def run(text: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A manifest that admits by invitation, with its tokenizer and the organiser's key."""
    path = tmp_path_factory.mktemp("invite") / "run.toml"
    done = dupt_peer("new", str(path), "--admission", "invite", "--corpus", str(text))
    assert done.returncode == 0, done.stderr
    assert f"keep a copy of {path.with_name('organiser.key')}" in done.stderr
    make_smaller(path, tokens_per_round=4096, growth=1.0)
    return path


def invite(run: Path, *options: str) -> dict[str, Any]:
    done = dupt_peer("invite", str(run), "--json", *options)
    assert done.returncode == 0, done.stderr
    invitation: dict[str, Any] = json.loads(done.stdout)
    return invitation


def names_of(shown: str) -> set[str]:
    return {peer["name"] for peer in json.loads(shown)["peers"]}


def test_every_command_that_connects_takes_an_invitation() -> None:
    """Where there is `--initial-peers` there is `--invitation`, and nowhere else."""
    commands = [context.command for program in PROGRAMS for context in commands_of(program)]
    options = {command.name: {option.name for option in command.params} for command in commands}
    connecting = {name for name, known in options.items() if "initial_peers" in known}
    assert {"join", "evaluate", "status", "audit", "check", "bootstrap", "pull", "main"} <= connecting
    assert connecting == {name for name, known in options.items() if "invitation" in known}


def test_an_organiser_has_one_key(run: Path, text: Path, tmp_path: Path) -> None:
    """`new` writes it for its owner only, its public half into the manifest, and uses one that is there."""
    key = run.with_name("organiser.key")
    assert stat.S_IMODE(key.stat().st_mode) == 0o600
    (tmp_path / "organiser.key").write_bytes(key.read_bytes())
    done = dupt_peer("new", str(tmp_path / "run.toml"), "--corpus", str(text))
    assert done.returncode == 0, done.stderr
    assert (tmp_path / "organiser.key").read_bytes() == key.read_bytes()
    [ours, theirs] = (
        [line for line in path.read_text().splitlines() if line.startswith("organiser = ")]
        for path in (run, tmp_path / "run.toml")
    )
    assert ours == theirs != []


def test_only_the_organiser_invites_and_revokes(run: Path, tmp_path: Path) -> None:
    """Without the key, with another swarm's, or with what is no invitation: exit code 2, and the reason."""
    alone = tmp_path / "run.toml"
    alone.write_bytes(run.read_bytes())
    for command in (("invite", str(alone)), ("revoke", str(alone), "0" * 16)):
        done = dupt_peer(*command)
        assert (done.returncode, done.stdout) == (2, "")
        assert "only who has the organiser's key" in done.stderr
    done = dupt_peer("revoke", str(run), "nonsense")
    assert done.returncode == 2 and "nothing was revoked: nonsense: this is" in done.stderr
    assert "give a token, an id (16 hexadecimal digits) or a credential" in done.stderr
    assert not run.with_name("revoked").exists()


def test_two_machines_of_the_organiser_revoke_without_each_other(run: Path, tmp_path: Path) -> None:
    """Each has the key and no file of the other's; the two files put together revoke both invitations."""
    lines = []
    for machine, invitation in (("one", "1" * 16), ("two", "2" * 16)):
        folder = tmp_path / machine
        folder.mkdir()
        for name in (run.name, "organiser.key"):
            (folder / name).write_bytes(run.with_name(name).read_bytes())
        done = dupt_peer("revoke", str(folder / run.name), invitation, "--json")
        assert (done.returncode, json.loads(done.stdout)) == (0, {"revoked": [invitation]}), done.stderr
        lines.append((folder / "revoked").read_text())
    (tmp_path / "two" / "revoked").write_text("".join(lines))
    done = dupt_peer("revoke", str(tmp_path / "two" / run.name), "3" * 16, "--json")
    assert json.loads(done.stdout) == {"revoked": ["1" * 16, "2" * 16, "3" * 16]}


def test_a_credential_that_begins_like_an_option_is_revoked(run: Path, tmp_path: Path) -> None:
    """One in 64 begins with a hyphen; wherever options stand, and with or without `--`."""
    invitation = invite(run)
    token = Token.parse(invitation["token"])
    credentials = (token.credential(f"peer {number}") for number in itertools.count())
    credential = next(credential for credential in credentials if credential.startswith("-"))
    for name in (run.name, "organiser.key"):
        (tmp_path / name).write_bytes(run.with_name(name).read_bytes())
    path = str(tmp_path / run.name)
    for words in ((path, credential, "--json"), ("--json", path, "1" * 16, "--", credential)):
        done = dupt_peer("revoke", *words)
        assert done.returncode == 0, done.stderr
        assert invitation["id"] in json.loads(done.stdout)["revoked"]


def test_an_open_swarm_invites_nobody(manifest: Path) -> None:
    """There is nothing to be invited to or cut off from, and the error says how to have it otherwise."""
    for command in (("invite", str(manifest)), ("revoke", str(manifest), "0" * 16)):
        done = dupt_peer(*command)
        assert done.returncode == 2 and "`dupt-peer new --admission invite`" in done.stderr


def test_a_token_is_one_line_on_stdout(run: Path) -> None:
    """What it is for, and its id, is on stderr."""
    done = dupt_peer("invite", str(run), "--uses", "3", "--days", "1")
    assert done.stdout.startswith("dupt-") and len(done.stdout.splitlines()) == 1
    assert "for 3 peers until" in done.stderr and "--invitation" in done.stderr


@pytest.fixture
def first(run: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, nothing_left: None) -> Iterator[str]:
    """A first peer's address."""
    del nothing_left
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "platform"))
    with first_peer(run, tmp_path / "first") as about:
        assert "--invitation TOKEN" in about["join"]
        yield about["address"]


@pytest.fixture
def join(first: str, text: Path, tmp_path: Path) -> Callable[..., tuple[str, ...]]:
    """The arguments with which an oracle joins: ``join(name, …)``."""

    def arguments(name: str, *more: str) -> tuple[str, ...]:
        corpus = ("--corpus", str(text), *LISTEN, "--name", name)
        return ("join", "--initial-peers", first, *corpus, "--state-dir", str(tmp_path / name), *more)

    return arguments


def test_strangers_are_told_whom_to_ask(first: str, join: Callable[..., Any], tmp_path: Path) -> None:
    """Every command that connects ends with exit code 12, and leaves nothing behind."""
    to = ("--initial-peers", first)
    for done in (
        dupt_peer("status", *to),
        dupt_peer("check", *to, *LISTEN, "--state-dir", str(tmp_path / "nobody")),
        dupt_model("pull", str(tmp_path / "model"), *to),
        dupt_peer(*join("nobody")),
    ):
        assert done.returncode == 12, done.stderr
        assert "admits by invitation: ask its organiser" in done.stderr + done.stdout
    assert not (tmp_path / "nobody").exists() and not (tmp_path / "model").exists()


@pytest.mark.system  # for its length; hostile/test_invitations.py shows it of nodes
def test_from_invitation_to_revocation(
    run: Path, first: str, join: Callable[..., Any], tmp_path: Path
) -> None:
    """Who is invited trains and comes back, and who is revoked is cut off."""
    to = ("--initial-peers", first)
    organisers, ones, twos = (invite(run, "--uses", "2") for _ in range(3))
    oracles = [
        start(*join("one", "--invitation", ones["token"])),
        start(*join("two"), DUPT_PEER_JOIN_INVITATION=twos["token"]),
    ]
    try:
        for oracle in oracles:
            wait_for_line(oracle, "last round averaged with 1 other")
        look = ("status", *to, "--json", "--invitation", organisers["token"])
        assert names_of(dupt_peer(*look).stdout) == {"", "one", "two"}
        checked = dupt_peer("check", *to, *LISTEN, "--json", "--invitation", organisers["token"])
        assert {"invitation": True}.items() <= {
            check["name"]: check["ok"] for check in json.loads(checked.stdout)["checks"]
        }.items()
        pulled = dupt_model("pull", str(tmp_path / "model"), *to, "--invitation", organisers["token"])
        assert pulled.returncode == 0, pulled.stderr

        oracles[0].terminate()
        oracles[0].communicate(timeout=30)
        oracles[0] = start(*join("one"))  # it has kept its token
        wait_for_line(oracles[0], "last round averaged with 1 other")

        done = dupt_peer("revoke", str(run), twos["id"])
        assert done.returncode == 0 and "now revokes 1 invitation to " in done.stderr
        wait_until(lambda: names_of(dupt_peer(*look).stdout) == {"", "one"}, "two is gone")
        wait_for_line(oracles[0], "last round averaged alone")
        wait_for_line(oracles[1], "last round averaged alone")
    finally:
        for oracle in oracles:
            oracle.terminate()
            oracle.communicate(timeout=30)
    done = dupt_peer(*join("two"))
    assert done.returncode == 12
    assert "the invitation has been revoked; ask its organiser for another" in done.stderr


def test_a_first_peer_without_the_key_needs_an_invitation(run: Path, tmp_path: Path) -> None:
    """Like anybody, whoever wrote the manifest."""
    for name in ("run.toml", "tokenizer.json"):
        (tmp_path / name).write_bytes(run.with_name(name).read_bytes())
    state = ("--state-dir", str(tmp_path / "state"))
    done = dupt_peer("bootstrap", str(tmp_path / "run.toml"), *LISTEN, *state)
    assert done.returncode == 12 and "ask its organiser" in done.stderr
    assert not (tmp_path / "state").exists()
