"""What travels is what was said; and words that do not belong are not read."""

from dataclasses import replace
from functools import partial

import pytest

from dupt_swarm.network.rounds.ballots import Ballots
from dupt_swarm.network.rounds.messages import AnswerMessage, PledgedRecord, ReportMessage
from dupt_swarm.network.rounds.pledges import Pledges
from dupt_swarm.network.rounds.reports import Pace, Report
from dupt_swarm.network.rounds.round import Round
from dupt_swarm.network.rounds.voice import Pledged, Voice
from dupt_swarm.replica.electorate import Electorate
from dupt_swarm.replica.link import Acceptance, Brought, Promise
from dupt_swarm.replica.signed_words import Words
from tests.support.signed_records import fresh_keys, id_of

SWARM, STATE, AFTER = "swarm-1", "ab" * 32, "cd" * 32
KEYS = {id_of(key): key for key in fresh_keys(3)}
IDS = sorted(KEYS)
ELECTORATE = Electorate().after(IDS, weak=True)
WEIGHT_MAX = 12  # what the last of them brings
PACE = Pace(gather=10.0, exchange=20.0, silence=5.0)


class Talking:
    """Members that tell each other everything as it travels.

    Attributes:
        rounds: by their ids.
        pledged: what each has kept last.
        sent: every message.
    """

    def __init__(self) -> None:
        self.pledged: dict[str, Pledged] = {}
        self.sent: list[ReportMessage | AnswerMessage] = []
        self.rounds = {peer: self._round(peer) for peer in IDS}
        for number, (peer, round) in enumerate(self.rounds.items()):
            round.bring(Brought(peer, f"{number}" * 64, 10 + number), 0.0)

    def _round(self, peer: str) -> Round:
        sign = partial(Words(SWARM).sign, KEYS[peer])
        voice = Voice(peer, sign, partial(self.pledged.__setitem__, peer))
        return Round(Ballots(voice, STATE, ELECTORATE, PACE, 0.0))

    def report(self, peer: str) -> None:
        """One tells its coordinator where it stands."""
        round, now = self.rounds[peer], 0.0
        round.consider(now, set(IDS) - {peer})
        for each in round.stock.missing:
            round.stock.held.add(each.digest)
        if round.to_judge is not None:
            round.judge(round.to_judge, AFTER)
        round.consider(now, set(IDS) - {peer})
        if not round.coordinator:
            return
        report = ReportMessage.read(ReportMessage.of(round.report()).pack())
        coordinating = self.rounds[round.coordinator]
        coordinating.note(report.report(Words(SWARM), peer, WEIGHT_MAX), now)
        said = coordinating.answer()
        answer = AnswerMessage.read(AnswerMessage.of(said).pack())
        assert answer.answer(Words(SWARM), STATE, WEIGHT_MAX) == said
        round.hear(round.coordinator, answer.answer(Words(SWARM), STATE, WEIGHT_MAX), now)
        self.sent += [report, answer]


@pytest.fixture(scope="module")
def talking() -> Talking:
    """Three members that have left the state together."""
    found = Talking()
    for _ in range(6):
        for peer in IDS:
            found.report(peer)
    return found


def test_a_round_as_it_travels(talking) -> None:
    """The link that comes of it has everything that it needs."""
    [link] = {round.link for round in talking.rounds.values()}
    assert link is not None
    link.check(ELECTORATE)
    assert all(each.signed for each in link.acceptances)


def test_words_of_others_are_not_believed(talking) -> None:
    """A report is about whoever calls, and every word in it about one state of this swarm."""
    reports = [each for each in talking.sent if isinstance(each, ReportMessage)]
    last = next(each for each in reversed(reports) if each.acceptance)
    words = Words(SWARM)
    maker = words.read_all([last.promise], Promise)[0].maker
    assert last.report(words, maker, WEIGHT_MAX).acceptance is not None
    other = next(peer for peer in IDS if peer != maker)
    for wrong, caller in ((last, other), (last.model_copy(update={"acceptance": None}), other)):
        with pytest.raises(ValueError, match="somebody else"):
            wrong.report(words, caller, WEIGHT_MAX)
    with pytest.raises(ValueError, match="another state"):
        last.model_copy(update={"state": AFTER}).report(words, maker, WEIGHT_MAX)
    with pytest.raises(ValueError, match="another swarm"):
        last.report(Words("swarm-2"), maker, WEIGHT_MAX)
    answer = next(each for each in talking.sent if isinstance(each, AnswerMessage) and each.link)
    with pytest.raises(ValueError, match="another state"):
        answer.answer(words, AFTER, WEIGHT_MAX)
    theirs = next(
        each.acceptance
        for each in reports
        if each.acceptance and words.read_all([each.acceptance], Acceptance)[0].maker != maker
    )
    with pytest.raises(ValueError, match="somebody else"):
        last.model_copy(update={"acceptance": theirs}).report(words, maker, WEIGHT_MAX)


def test_no_contribution_stands_for_more_than_it_can(talking) -> None:
    """Neither one that is brought nor one that is proposed, whoever says so."""
    words, less = Words(SWARM), 9
    report = next(each for each in talking.sent if isinstance(each, ReportMessage))
    maker = words.read_all([report.promise], Promise)[0].maker
    found = next(each for each in talking.sent if isinstance(each, AnswerMessage) and each.proposal)
    alone = tuple(each.model_copy(update={"promises": ()}) for each in found.proposal)
    proposing = found.model_copy(update={"roll": (), "proposal": alone})
    for read in (
        partial(report.report, words, maker),
        partial(found.model_copy(update={"proposal": ()}).answer, words, STATE),
        partial(proposing.answer, words, STATE),
    ):
        read(WEIGHT_MAX)
        with pytest.raises(ValueError, match="stands for more than it can"):
            read(less)
    proposing.model_copy(update={"proposal": ()}).answer(words, STATE, less)


def test_all_that_is_said_is_evidence(talking) -> None:
    """Also what was signed for a link, and what was proposed."""
    answers = [each for each in talking.sent if isinstance(each, AnswerMessage)]
    [linking] = [each.answer(Words(SWARM), STATE, WEIGHT_MAX) for each in answers if each.link][:1]
    assert linking.link is not None and {*linking.link.words} <= {*linking.words}
    [proposing] = [each.answer(Words(SWARM), STATE, WEIGHT_MAX) for each in answers if each.proposal][:1]
    assert proposing.proposal is not None and proposing.proposal in proposing.words


def test_what_was_pledged_is_kept(talking, tmp_path) -> None:
    """On disk, of the last four states, as it was; a file that cannot be read begins anew."""
    path = tmp_path / "pledges.json"
    kept = talking.pledged[IDS[0]]
    assert kept.accepted is not None and kept.basis is not None and kept.basis.promises
    pledges = Pledges(path)
    for state in range(5):
        pledges.keep(f"{state}" * 64, kept)
    again = Pledges(path)
    assert again.of("0" * 64, Words(SWARM)) is None
    for state in (1, 5):  # those of which something was signed last
        again.keep(f"{state}" * 64, kept)
    assert [again.of(f"{state}" * 64, Words(SWARM)) is None for state in (1, 2, 3)] == [False, True, False]
    found = again.of("4" * 64, Words(SWARM))
    assert found is not None and found.basis is not None
    assert found == kept and found.basis.promises == kept.basis.promises
    assert Pledges(path).of("4" * 64, Words("swarm-2")) is None  # a word in it is none
    path.write_text("{")
    assert Pledges(path).of("4" * 64, Words(SWARM)) is None


def test_a_leave_is_kept_and_travels() -> None:
    """With what its maker had refused."""
    talking = Talking()
    round = talking.rounds[IDS[0]]
    report = round.leave()
    message = ReportMessage.read(ReportMessage.of(report).pack())
    assert message.report(Words(SWARM), IDS[0], WEIGHT_MAX) == report
    kept = replace(talking.pledged[IDS[0]], refused=frozenset({"e" * 64}))
    assert PledgedRecord.of(kept).pledged(Words(SWARM)) == kept
    nested = Report(talking.rounds[IDS[1]].report().promise, leaves=(Report(report.promise),))
    assert len(ReportMessage.of(nested).report(Words(SWARM), IDS[1], WEIGHT_MAX).words) == 2
