import json
import re
import urllib.error
import urllib.request
from collections.abc import Iterator
from dataclasses import replace
from email.message import Message
from html.parser import HTMLParser
from http.client import HTTPResponse
from typing import Any
from urllib.parse import parse_qs, urlencode

import pytest

from dupt_swarm.command_line.printable import printable
from dupt_swarm.manifest.tables import Objective, Offer
from dupt_swarm.node.view import Peer, View
from dupt_swarm.replica.ledger import Entry, Ledger
from monitor import formats
from monitor.history import History, Point
from monitor.site import FILES, Site
from monitor.summary import OfferSummary
from monitor.watcher import Snapshot
from tests.support.invented import ADDRESS, EVIL, EVIL_SAMPLE, MANIFEST, NOW, peer, remembered, seen, served

HOSTILE = (
    EVIL,
    '"><img src=x onerror=alert(1)>',
    "' onmouseover='alert(1)",
    "{{ 7 * 7 }}{% raw %}",
    "\u202eeman\u2066",
    "a\x00b\x1b[31m\r\nc",
    "W" * 40,
    "﷽" * 40,
    "&lt;b&gt;",
)


class Tags(HTMLParser):
    """The tags of a page with their attributes, and its text."""

    def __init__(self, html: str) -> None:
        super().__init__()
        self.tags: list[tuple[str, dict[str, str | None]]] = []
        self.text = ""
        self.feed(html)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append((tag, dict(attrs)))

    def handle_data(self, data: str) -> None:
        self.text += data

    def named(self, tag: str) -> list[dict[str, str | None]]:
        return [attributes for name, attributes in self.tags if name == tag]


def speaker(prompt: str, text: str) -> Peer:
    """An evaluator that has let the model say something."""
    evaluation = {"dataset": "news", "bits_per_byte": 1.25, "loss_nats": 4.5, "round": 3, "time": NOW}
    sample = {"prompt": prompt, "text": text}
    return peer("e", role="evaluator", name="ada", evaluation={**evaluation, "sample": sample})


def site_of(snapshot: Snapshot, history: History | None = None, address: str = ADDRESS) -> Site:
    return Site(lambda: snapshot, history or History(), [address], lambda: NOW)


def words(site: Site, query: str = "") -> str:
    """The text of its page, on one line."""
    return " ".join(Tags(site.page(query)).text.split())


@pytest.fixture
def url() -> Iterator[str]:
    """A running monitor of a small swarm."""
    site = site_of(seen(peer("a", loss=2.0)), remembered(Point(NOW, 3, 900, 2.0, 2.0, 2.0)))
    with served(site) as url:
        yield url


def get(url: str, method: str = "GET") -> tuple[int, Message, str]:
    """Status, headers and body."""
    response: HTTPResponse | urllib.error.HTTPError
    try:
        response = urllib.request.urlopen(urllib.request.Request(url, method=method), timeout=5)
    except urllib.error.HTTPError as error:
        response = error
    with response:
        assert response.status is not None
        return response.status, response.headers, response.read().decode()


def test_page_shows_the_swarm() -> None:
    """Without any script the page has the name, the join line, the curve, the round and the peers."""
    history = remembered(*(Point(NOW - 500 + 5 * n, 3, 900, 8 - n / 20, 3.0, 8.5, 8.1) for n in range(100)))
    page = Tags(site_of(seen(peer("a", name="ada", loss=3.1, tokens_per_second=50.0)), history).page())
    text = " ".join(page.text.split())
    assert f"dupt-peer join --initial-peers {ADDRESS} --swarm " in text
    for shown in (MANIFEST.swarm_id, "ada", "3.100", "100 %", "training", "nats per token"):
        assert shown in text
    assert {path["class"] for path in page.named("path")} == {"band", "line training", "line heldout"}
    (plot,) = (svg for svg in page.named("svg") if svg.get("role") == "img")
    assert str(plot["aria-label"]).startswith("Loss curve: training loss went from 8.000 to 3.050")
    assert len(json.loads(str(plot["data-hover"]))) == 100


def test_text_that_the_swarm_offers() -> None:
    """Whoever has none reads that none is needed, its title and licence; markup in it stays text."""
    offer = Offer(digest="0" * 64, tokens=1_234_567, title="<b>Wiki</b>", source="x.org", licence="CC0")
    snapshot = seen(peer("a"))
    site = site_of(replace(snapshot, manifest=snapshot.manifest.model_copy(update={"offer": offer})))
    text = words(site)
    assert "You need no text: the swarm offers <b>Wiki</b> (CC0), 1,234,567 tokens, from x.org." in text
    assert "--corpus PATH" not in site.summary().join
    assert site.summary().offer == OfferSummary(
        title="<b>Wiki</b>", source="x.org", licence="CC0", tokens=1_234_567
    )
    assert site_of(snapshot).summary().offer is None


LEDGER = Ledger(0, 900, tuple(Entry(f"QmPeer{n:02}", 1000 - 10 * n, 30 - n, 0, 1, 900) for n in range(30)))


def test_contributors() -> None:
    """The ten who have given most, ever, under the names that they have now."""
    snapshot = replace(seen(peer("QmPeer01", name="<b>ada</b>")), ledger=LEDGER)
    site = site_of(snapshot)
    text = words(site)
    assert "tokens of 30 peers in the rounds up to 900." in text
    assert "2 <b>ada</b> 990 4 % 29 1 900" in text
    assert "QmPeer09" in text
    assert "QmPeer10" not in text
    listed = site.summary().contributors
    assert listed is not None
    assert [each.place for each in listed.listed] == [*range(1, 11)]
    assert 'class="found"' not in site_of(replace(seen(peer("QmPeer29")), ledger=LEDGER)).page()
    assert "The links of the rounds are being read." in site_of(seen(peer("a"))).page()


def test_a_young_swarm_has_no_contributors() -> None:
    """That is said, and no numbers of nothing."""
    text = Tags(site_of(replace(seen(peer("a")), ledger=Ledger(0, 0, ()))).page()).text
    assert "Up to round 0 no contribution has counted." in text
    assert "0 peers" not in text


@pytest.mark.parametrize("sought", ["QmPeer20", "mPeer20", "eve"])
def test_a_contributor_is_found(sought: str) -> None:
    """By its id, the end of it, or the name that it has now: whatever its place."""
    snapshot = replace(seen(peer("QmPeer20", name="eve")), ledger=LEDGER)
    page = Tags(site_of(snapshot).page(f"peer={sought}"))
    assert "21 eve 800" in " ".join(page.text.split())
    [field] = page.named("input")
    assert field["value"] == sought


def test_an_id_is_found_before_a_name() -> None:
    """Anybody may call itself as another's id ends; of those with one name the one that has given most."""
    impostor = peer("QmPeer29", name="mPeer20")
    twins = (peer("QmPeer25", name="ada"), peer("QmPeer05", name="ada"), peer("QmNobody", name="ada"))
    site = site_of(replace(seen(impostor, *twins), ledger=LEDGER))
    assert "21 QmPeer20" in words(site, "peer=mPeer20")
    assert "6 ada 950" in words(site, "peer=ada")


def test_a_peer_whose_work_counted_for_nothing_has_no_place() -> None:
    """It is not listed; whoever looks for it sees that there was something."""
    ledger = Ledger(0, 3, (Entry("QmGiver", 10, 1, 0, 3, 3), Entry("QmDropped", 0, 0, 2, 0, 0)), weak=1)
    site = site_of(replace(seen(peer("a")), ledger=ledger))
    assert "QmDropped" not in site.page()
    text = words(site, "peer=QmDropped")
    assert "– QmDropped 0 0 % 0 – –" in text
    assert "tokens of 1 peer in the rounds up to 3, 1 of them weak." in text
    alone = replace(seen(peer("a")), ledger=Ledger(0, 3, ledger.entries[1:]))
    assert "– QmDropped 0 0 % 0 – –" in words(site_of(alone), "peer=QmDropped")


@pytest.mark.parametrize("sought", ["QmNobody", "e", "eer20", "<script>", "a" * 5000, "%00"])
def test_a_peer_that_is_not_found(sought: str) -> None:
    """It is said how to look, not that it gave nothing: it may only be away; what was typed stays text."""
    page = site_of(replace(seen(peer("QmPeer03", name="see")), ledger=LEDGER)).page(
        urlencode({"peer": sought})
    )
    assert "now, or has an id that ends so (6 characters at least)." in page
    assert "has counted" not in page
    assert "<script>" not in page
    assert "a" * 101 not in page


def test_reloads_without_javascript() -> None:
    """Browsers without scripts are told to load the page anew now and then."""
    assert '<noscript><meta http-equiv="refresh" content="30"></noscript>' in site_of(seen(peer("a"))).page()


def test_evaluation() -> None:
    """An evaluator's figure takes the place of the oracles' own."""
    evaluation: dict[str, Any] = {"dataset": "news", "bits_per_byte": 1.25, "loss_nats": 4.5, "round": 3}
    judge = peer("e", role="evaluator", evaluation={**evaluation, "time": NOW})
    text = Tags(site_of(seen(peer("a"), judge)).page()).text
    assert "1.250" in text
    assert "news" in text


def test_accuracy_beside_the_loss() -> None:
    """A swarm that learns a task shows its accuracy, of all and of each; an evaluator's goes first."""
    oracles = (peer("a", heldout_loss=0.4, heldout_accuracy=0.5), peer("b", heldout_accuracy=0.76))
    text = words(site_of(seen(*oracles)))
    assert "Accuracy 63 % held-out loss 0.400" in text
    assert "Join with a text of your own" in text
    assert "50 %" in text
    assert "76 %" in text
    found = {"dataset": "reviews", "accuracy": 0.91, "loss_nats": 0.3, "round": 3, "time": NOW}
    text = words(site_of(seen(*oracles, peer("e", role="evaluator", evaluation=found))))
    assert "Accuracy 91 % evaluated on reviews" in text
    assert "Accuracy" not in site_of(seen(peer("a", heldout_loss=0.4))).page()


@pytest.mark.parametrize(
    ("objective", "join", "stays", "unit"),
    [
        ({}, "a text", "Your text stays", "nats per token"),
        ({"kind": "mlm", "nsp": True}, "a text", "Your text stays", "nats per token"),
        ({"kind": "seq2seq"}, "pairs of texts", "Your examples stay", "nats per token"),
        (
            {"kind": "classification", "labels": ["a", "b"]},
            *("labelled examples", "Your examples stay", "nats per example"),
        ),
    ],
)
def test_what_oracles_bring(objective: dict[str, Any], join: str, stays: str, unit: str) -> None:
    """Text, pairs or labelled examples; and what the loss is of."""
    manifest = MANIFEST.model_copy(update={"objective": Objective(**objective)})
    page = words(site_of(replace(seen(peer("a")), manifest=manifest)))
    assert f"Join with {join} of your own" in page and f"{stays} on your machine" in page and unit in page


def test_next_sentences_beside_masked_tokens() -> None:
    """An encoder's two accuracies, each on a line of its own."""
    encoder = peer("a", heldout_loss=7.0, heldout_accuracy=0.11, heldout_nsp_accuracy=0.6)
    text = words(site_of(seen(encoder)))
    assert "Accuracy 11 % next sentences 60 % held-out loss 7.000" in text


def test_what_rounds_cost() -> None:
    """Bytes, seconds and what is left, of each oracle that has ended a round; else not a word of it."""
    costs = {
        **{"round_sent_bytes": 12_345_678, "round_received_bytes": 999, "utilization": 0.966},
        **{"round_waiting_seconds": 0.34, "waiting_seconds": 300.0},
    }
    text = words(site_of(seen(peer("a", name="ada", **costs), peer("b"))))
    assert "What rounds cost in bytes and time OracleSentReceivedWaitedin allUtilization" in text
    assert " ada 12.3 MB 999 B 0.3 s 5 min 97 % Sent, received" in text
    first = peer("first", role="bootstrap", **costs)
    without = site_of(seen(peer("a"), first)).page()
    assert "What rounds cost" not in without
    assert Tags(without).tags.count(("div", {"class": "place", "id": "costs", "data-live": None})) == 1


def test_what_was_refused() -> None:
    """By kind and reason, the most frequent first, once there is anything."""
    snapshot = seen(peer("a"))
    totals = snapshot.totals.model_copy(
        update={"refused_messages": {"rate": 3, "form": 1200, "size": 0}, "rejected": {"not_finite": 1}}
    )
    text = words(site_of(replace(snapshot, totals=totals)))
    assert "1,203 messages refused: form 1,200, rate 3 1 contribution refused: not finite 1" in text
    assert "refused" not in Tags(site_of(snapshot).page()).text


def test_a_peer_that_has_contradicted_itself() -> None:
    """Its id, and how many leave it out."""
    snapshot = seen(peer("a", exposed=("QmLiar", "QmBad")), peer("b", exposed=("QmLiar",)))
    text = words(site_of(snapshot))
    assert "QmLiar has contradicted itself: 2 peers leave it out for good" in text
    assert "QmBad has contradicted itself: 1 peer leaves it out for good" in text
    assert "contradicted" not in Tags(site_of(seen(peer("a"))).page()).text


def test_only_oracles_are_late_or_slow() -> None:
    """An evaluator measures when it can, and trains nothing; without oracles nobody works on the round."""
    old = {"round": 1, "state_digest": "b" * 64, "swarm_tokens": 300}
    judge = peer("judge", role="evaluator", state="evaluating", device="cpu", **old)
    text = words(site_of(seen(peer("a"), peer("late", **old), judge)))
    assert "late 2 behind" in text
    assert "judge evaluator evaluating – – – – cpu" in text
    assert "nobody works on it" not in text
    assert "Round 3 nobody works on it" in words(site_of(seen(peer("f", role="bootstrap", state="serving"))))


def test_a_link_that_an_evaluator_gives_is_not_followed_with_trust() -> None:
    """Neither a search engine counts it, nor does the page behind it learn whence one came."""
    evaluation = {"dataset": "news", "loss_nats": 4.5, "round": 3, "time": NOW}
    url = "https://example.org/model"
    judge = peer("e", role="evaluator", evaluation=evaluation, published_at=url)
    [link] = [tag for tag in Tags(site_of(seen(peer("a"), judge)).page()).named("a") if tag["href"] == url]
    assert link["rel"] == "nofollow noopener noreferrer"


@pytest.mark.parametrize(
    ("count", "shown"),
    [(None, "–"), (0, "0 B"), (1234, "1.23 kB"), (45_600_000, "45.6 MB"), ((1 << 62) - 1, "4,611,686 TB")],
)
def test_sizes(count: int | None, shown: str) -> None:
    """Three digits with the unit that suits them; the greatest that a record may claim is a number too."""
    assert formats.size(count) == shown.replace(" ", "\N{NO-BREAK SPACE}")


@pytest.mark.parametrize(
    ("seconds", "shown"),
    [(None, "–"), (0.0, "0.0 s"), (14.94, "14.9 s"), (15.0, "15 s"), (1e9, "11574 days")],
)
def test_waits(seconds: float | None, shown: str) -> None:
    """Tenths where they matter."""
    assert formats.wait(seconds) == shown.replace(" ", "\N{NO-BREAK SPACE}")


def test_what_the_model_says() -> None:
    """The newest sample is there with round and evaluator, and called generated; else not a word of it."""
    without = site_of(seen(peer("a"))).page()
    assert "What the model says" not in without
    assert Tags(without).tags.count(("div", {"class": "place", "id": "says", "data-live": None})) == 1
    text = words(site_of(seen(peer("a"), speaker("Once", " upon\na time"))))
    assert "What the model says at round 3 Once upon a time Generated by the model" in text
    assert "as evaluator ada asked it to" in text


@pytest.mark.parametrize("prompt", [True, False])
@pytest.mark.parametrize("hostile", [*HOSTILE, EVIL_SAMPLE, "\n" * 590, "W" * 590])
def test_hostile_samples(hostile: str, prompt: bool) -> None:
    """Whatever a model or its evaluator says is text, as with names."""
    hostile = hostile.encode()[:590].decode(errors="ignore")
    plain = Tags(site_of(seen(peer("a"), speaker("x", "y"))).page())
    html = site_of(seen(peer("a"), speaker(*((hostile, "") if prompt else ("x", hostile))))).page()
    page = Tags(html)
    assert [(tag, set(attributes)) for tag, attributes in page.tags] == [
        (tag, set(attributes)) for tag, attributes in plain.tags
    ]
    assert set("\x00\x1b\r\x9b\u202e\u2066") & set(html) == set()
    assert printable(hostile) in page.text


@pytest.mark.parametrize("by", ["", "by=tokens", "by=<script>", "by=tokens&by=x", "%ff=%00"])
def test_axis_is_chosen_in_the_address(by: str) -> None:
    """Only `by=tokens` means tokens; whatever else stands there is ignored and not repeated."""
    history = remembered(Point(NOW - 60, 2, 600, 3.0), Point(NOW, 3, 900, 2.0))
    html = site_of(seen(peer("a")), history).page(by)
    assert ('x="0.0%" y="261" text-anchor="middle">600<' in html) == (by == "by=tokens")
    assert "<script>" not in html


@pytest.mark.parametrize("sought", ["", "ada", "a&by=x #?", '"><script>', "%00ü"])
def test_another_axis_forgets_no_search(sought: str) -> None:
    """The links to the other axis keep what is sought, whatever it is, and ask for nothing else."""
    site = site_of(replace(seen(peer("a")), ledger=LEDGER))
    for by in ({}, {"by": "tokens"}):
        links = Tags(site.page(urlencode(by | {"peer": sought}))).named("a")[:2]
        asked = [parse_qs(str(link["href"]).removeprefix("/").removeprefix("?")) for link in links]
        kept = {"peer": [sought]} if sought else {}
        assert asked == [kept, {"by": ["tokens"], **kept}]


@pytest.mark.parametrize("name", HOSTILE)
def test_hostile_names(name: str) -> None:
    """Whatever a peer calls itself is text: it adds no tag and no attribute, and no invisible mark."""
    plain = Tags(site_of(seen(peer("a", name="ada", device="x"))).page())
    html = site_of(seen(peer("a", name=name, device=name))).page()
    page = Tags(html)
    assert [(tag, set(attributes)) for tag, attributes in page.tags] == [
        (tag, set(attributes)) for tag, attributes in plain.tags
    ]
    assert set("\x00\x1b\r\u202e\u2066") & set(html) == set()
    shown = "".join(character if character.isprintable() else "�" for character in name)
    assert page.text.count(shown) == 2


def test_hostile_address() -> None:
    """The line to join with is escaped too."""
    html = site_of(seen(peer("a")), address=f"/ip4/1.2.3.4/tcp/1/{EVIL}/p2p/x").page()
    assert EVIL not in html
    assert len(Tags(html).named("script")) == 1


def test_empty_swarm() -> None:
    """Before anybody is there the page says what is going to be where."""
    text = Tags(site_of(Snapshot(MANIFEST, View(NOW, ()))).page()).text
    assert "No peer has been heard of" in text
    assert "The curve begins when" in text
    assert "Out of reach" in text


def test_local_address_is_said_to_be_local() -> None:
    """An address that works on one machine only is marked as such."""
    local = "/ip4/127.0.0.1/tcp/1/p2p/x"
    assert "own machine only" in site_of(seen(peer("a")), address=local).page()
    assert "own machine only" not in site_of(seen(peer("a"))).page()


def test_small_with_a_thousand_peers() -> None:
    """Page, style and script together stay below 80 kB with a thousand peers and a long history."""
    costs = {
        **{"round_sent_bytes": 10**9, "round_received_bytes": 10**9, "utilization": 0.5},
        **{"round_waiting_seconds": 0.5, "waiting_seconds": 0.5},
    }
    about = {"name": "é" * 20, "device": "NVIDIA H100" * 3, "loss": 3.0} | costs
    peers = [peer(f"Qm{n:044}", **about) for n in range(1000)]
    history = remembered(*(Point(NOW - 10_000 + 5 * n, 3, 900, 3.1, 3.0, 3.2, 3.4) for n in range(2000)))
    site = site_of(seen(*peers), history)
    html = site.page()
    assert "and 970 more peers" in html
    files = [site.answer(f"/page/{name}") for name in FILES]
    assert len(html.encode()) < 60_000
    assert len(html.encode()) + sum(len(file.body) for file in files if file) < 80_000


def test_json(url: str) -> None:
    """`/api/v1/swarm` is JSON that nobody keeps."""
    status, headers, body = get(f"{url}/api/v1/swarm")
    assert (status, headers["Content-Type"], headers["Cache-Control"]) == (
        *(200, "application/json", "no-store"),
    )
    assert json.loads(body)["swarm_id"] == MANIFEST.swarm_id


def test_schema(url: str) -> None:
    """`/api/v1/schema` describes every field of the JSON, in all its parts."""
    _, _, body = get(f"{url}/api/v1/swarm")
    _, headers, schema = get(f"{url}/api/v1/schema")
    described = json.loads(schema)
    assert headers["Content-Type"] == "application/schema+json"
    assert set(described["properties"]) == set(json.loads(body))
    assert set(described["$defs"]["PeerSummary"]["properties"]) == set(json.loads(body)["peers"]["listed"][0])


@pytest.mark.parametrize("path", ["/", "/api/v1/swarm", "/healthz", "/metrics", "/page/page.css", "/nothing"])
def test_security_headers(url: str, path: str) -> None:
    """Every answer forbids foreign content, guessing of types, and being framed."""
    _, headers, _ = get(url + path)
    policy = dict(part.strip().split(" ", 1) for part in headers["Content-Security-Policy"].split(";"))
    assert policy["default-src"] == policy["frame-ancestors"] == policy["base-uri"] == "'none'"
    assert policy["script-src"] == policy["style-src"] == "'self'"
    assert headers["X-Content-Type-Options"] == "nosniff"
    assert headers["Referrer-Policy"] == "no-referrer"


def test_files_of_the_page(url: str) -> None:
    """Style, script and icon come from the monitor, and may be kept as their address changes with them."""
    page = Tags(get(f"{url}/")[2])
    addresses = [page.named("script")[0]["src"], *(link["href"] for link in page.named("link"))]
    assert len(addresses) == len(FILES)
    for address in addresses:
        assert re.fullmatch(r"/page/[a-z]+\.(css|js|svg)\?[0-9a-f]{12}", str(address))
        status, headers, body = get(f"{url}{address}")
        assert (status, "immutable" in headers["Cache-Control"]) == (200, True)
        assert body


def test_nothing_inline() -> None:
    """The policy forbids inline script and style, so the page must have none."""
    html = site_of(seen(peer("a", loss=2.0)), remembered(Point(NOW, 3, 900, 2.0))).page()
    page = Tags(html)
    assert not page.named("style")
    assert all(script.get("src") for script in page.named("script"))
    attributes = {name for _, named in page.tags for name in named}
    assert not {name for name in attributes if name == "style" or name.startswith("on")}


@pytest.mark.parametrize("path", ["/page/../site.py", "/page/page.html", "/page/", "/page/%2e%2e/site.py"])
def test_no_other_files(url: str, path: str) -> None:
    """Only the three files of the page are served."""
    assert get(url + path)[0] == 404


@pytest.mark.parametrize("method", ["POST", "PUT", "DELETE", "OPTIONS"])
def test_only_get(url: str, method: str) -> None:
    """Nothing can be changed over HTTP, and the answer says what is possible."""
    status, headers, _ = get(f"{url}/api/v1/swarm", method)
    assert (status, headers["Allow"]) == (405, "GET, HEAD")


def test_head(url: str) -> None:
    """HEAD has the headers of GET without its body."""
    status, headers, body = get(f"{url}/", "HEAD")
    assert (status, body) == (200, "")
    assert int(headers["Content-Length"]) == len(get(f"{url}/")[2].encode())
