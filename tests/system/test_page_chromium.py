"""The monitor's page in a real browser: Debian's Chromium, headless, driven by Playwright."""

import json
import os
import re
import shutil
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from playwright.sync_api import Browser, Dialog, Page, expect, sync_playwright

from dupt_swarm.learning.left_out import TextFiles
from dupt_swarm.presets import manifest_from_preset
from monitor import site
from monitor.site import Site
from peers import new
from peers.processes import LocalProcesses
from tests.support.invented import ADDRESS, EVIL, NOW, TrainedSwarm, served
from tests.support.lacking import skip
from tests.support.smaller import make_smaller

pytestmark = [pytest.mark.system, pytest.mark.usefixtures("nothing_left")]

LOOPBACK = "/ip4/127.0.0.1/tcp/0"
PATIENCE = 120_000  # milliseconds: processes start slowly where much runs at once
ASSETS = 3

Open = Callable[..., "Visit"]


class Visit:
    """A page in a browser, and what went wrong in it.

    Attributes:
        page: Playwright's.
        complaints: errors and warnings of the console, uncaught exceptions, dialogs, failed requests.
        hosts: everywhere that it sent requests to.
    """

    def __init__(self, page: Page, url: str) -> None:
        self.page = page
        self.complaints: list[str] = []
        self.hosts: set[str] = set()
        page.on("console", self._note_message)
        page.on("pageerror", lambda error: self.complaints.append(str(error)))
        page.on("dialog", self._note_dialog)
        page.on("request", lambda request: self.hosts.add(request.url.split("/")[2]))
        page.goto(url)

    def _note_dialog(self, dialog: Dialog) -> None:
        self.complaints.append(dialog.message)
        dialog.dismiss()

    def _note_message(self, message: Any) -> None:
        if message.type in ("error", "warning"):
            self.complaints.append(message.text)

    def renew(self) -> None:
        """What the script does every few seconds."""
        self.page.evaluate("renew()")

    def overflow(self) -> int:
        """Pixels by which the page is wider than the window."""
        return int(self.page.evaluate("document.scrollingElement.scrollWidth - innerWidth"))


@pytest.fixture
def browser(
    nothing_left: None,  # noqa: ARG001 (its processes end before that looks)
    tmp_path_factory: pytest.TempPathFactory,
) -> Iterator[Browser]:
    """Chromium, or a reason to skip."""
    chromium = shutil.which("chromium")
    if chromium is None:
        skip("chromium is not installed (Debian package chromium)")
    # Root may not use Chromium's sandbox; it only visits our own page here.
    arguments = ["--no-sandbox"] if os.geteuid() == 0 else []
    with sync_playwright() as playwright:
        # It has shared memory in files, and one of its processes may end before it has removed one.
        own: dict[str, str | float | bool] = {
            **os.environ,
            "TMPDIR": str(tmp_path_factory.mktemp("chromium")),
        }
        browser = playwright.chromium.launch(executable_path=chromium, args=arguments, env=own)
        yield browser
        browser.close()


@pytest.fixture
def visit(browser: Browser) -> Open:
    """Opens a page; options are those of a Playwright context. Width first, as that is what varies."""

    def visit(url: str, width: int = 1280, **options: Any) -> Visit:
        context = browser.new_context(viewport={"width": width, "height": 800}, **options)
        return Visit(context.new_page(), url)

    return visit


def test_real_swarm(visit: Open, tmp_path: Path) -> None:
    """While two oracles train, the open page draws their loss, goes on with it, and shows hostile names."""
    with LocalProcesses(tmp_path / "logs") as processes:
        url = start_swarm(processes, tmp_path)
        seen = visit(url, java_script_enabled=True)
        page = seen.page
        page.evaluate("window.loadedOnce = true")
        curve = page.locator("path.line.training")
        expect(curve).to_have_count(1, timeout=PATIENCE)
        first = curve.get_attribute("d")
        expect(curve).not_to_have_attribute("d", str(first), timeout=PATIENCE)
        expect(page.locator(".figure").first.locator("b")).not_to_have_text("0", timeout=PATIENCE)
        expect(page.locator("#peers tbody tr")).to_have_count(3, timeout=PATIENCE)
        expect(page.locator("#costs tbody tr")).to_have_count(2, timeout=PATIENCE)
        expect(page.locator("#peers").get_by_text(EVIL, exact=True)).to_be_visible(timeout=PATIENCE)
        expect(page.locator("#join-line")).to_contain_text("--initial-peers /ip4/127.0.0.1/tcp/")
        box = curve.bounding_box()
        assert box is not None
        assert box["width"] > 0
        assert page.evaluate("window.loadedOnce")
        assert seen.complaints == []
        assert seen.hosts == {url.split("/")[2]}


def start_swarm(processes: LocalProcesses, folder: Path) -> str:
    """Start a first peer, two oracles and the monitor; the URL of the page."""
    for name in ("argparse", "typing"):
        (folder / name).mkdir()
        shutil.copy(Path(os.__file__).with_name(f"{name}.py"), folder / name)
    run = folder / "run.toml"
    new.write(run, "tiny", new.read_all([TextFiles(folder / "argparse")]), name="watched", seed=0)
    make_smaller(run)
    listen = ("--host-maddrs", LOOPBACK, "--state-dir")
    processes.start("bootstrap", "dupt-peer", "bootstrap", str(run), "--json", *listen, str(folder / "first"))
    address = json.loads(processes.first_line("bootstrap"))["addresses"][0]
    processes.start("monitor", "dupt-monitor", "--initial-peers", address, "--port", "0")
    for corpus, name in (("argparse", EVIL), ("typing", "W" * 40)):
        processes.start(
            corpus,
            *("dupt-peer", "join", "--initial-peers", address, "--corpus", str(folder / corpus)),
            *("--name", name, *listen, str(folder / f"state-{corpus}")),
        )
    return processes.first_line("monitor").removesuffix("metrics")


@pytest.mark.parametrize("width", [320, 390, 820, 1280, 2560])
def test_fits_the_window(visit: Open, width: int) -> None:
    """From the smallest phone to a wide screen nothing sticks out, whatever the names, ids and links are."""
    with served(TrainedSwarm().site()) as url:
        seen = visit(f"{url}/?peer={'W' * 100}", width)
        assert seen.overflow() <= 0
        for hint in seen.page.locator(".hint").all():
            assert hint.evaluate("one => one.scrollWidth - one.clientWidth") <= 0, hint.inner_text()
        plot, curve = (seen.page.locator(one).bounding_box() for one in (".plot", "path.line.training"))
        assert plot is not None
        assert curve is not None
        assert 0 < plot["x"] < plot["x"] + plot["width"] < width
        assert curve["width"] == pytest.approx(plot["width"], abs=6)
        for row in seen.page.locator("tbody tr").all():
            box = row.bounding_box()
            assert box is not None
            assert box["height"] < 70
        assert seen.complaints == []


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_what_the_model_says(visit: Open, scheme: Any, tmp_path: Path) -> None:
    """A sample full of markup, directions, emoji and a word without end is text in a box of its own."""
    with served(TrainedSwarm().site()) as url:
        seen = visit(url, color_scheme=scheme)
        page = seen.page
        box = page.locator(".sample")
        box.scroll_into_view_if_needed()
        page.screenshot(path=tmp_path / f"sample-{scheme}.png", full_page=True)
        expect(box).to_be_visible()
        expect(box).to_contain_text("<script>alert(2)</script>")
        expect(page.get_by_role("heading", name="What the model says at round 3")).to_be_visible()
        expect(page.locator("#says .hint")).to_contain_text("Generated by the model")
        assert box.locator("script, img, b").count() == 0
        place = box.bounding_box()
        assert place is not None
        assert place["height"] <= 201
        assert seen.overflow() <= 0
        assert seen.complaints == []


def test_a_first_sample_appears(visit: Open) -> None:
    """On an open page, as soon as an evaluator has one, and it goes when the evaluator does."""
    swarm = TrainedSwarm()
    speaking = swarm.lose_evaluator()
    with served(swarm.site()) as url:
        seen = visit(url)
        expect(seen.page.locator(".sample")).to_have_count(0)
        swarm.snapshot = speaking
        seen.renew()
        expect(seen.page.locator(".sample")).to_contain_text("WWWWW")
        swarm.lose_evaluator()
        seen.renew()
        expect(seen.page.locator(".sample")).to_have_count(0)
        assert seen.complaints == []


OVERTAKEN = """async () => {
    for (let timer = setInterval(() => 0, 1e9); timer; timer--) clearInterval(timer);
    const real = window.fetch, held = [];
    window.fetch = (...what) => real(...what).then(
        (answer) => new Promise((done, fail) => held.push({ done: () => done(answer), fail })));
    const until = async (count) => {
        while (held.length < count) await new Promise((done) => setTimeout(done, 10));
    };
    window.slow = [renew(), renew()];
    await until(2);
    window.release = async () => {
        const quick = renew();
        await until(3);
        held[2].done();
        await quick;
        held[0].done();
        held[1].fail(new Error("no answer in time"));
        await Promise.all(window.slow);
        window.fetch = real;
    };
}"""


def test_an_answer_that_was_overtaken(visit: Open) -> None:
    """While a monitor is busy or starts again, an answer may come after a newer one: it changes nothing."""
    swarm = TrainedSwarm()
    speaking = swarm.lose_evaluator()
    with served(swarm.site()) as url:
        seen = visit(url)
        seen.page.evaluate(OVERTAKEN)
        swarm.snapshot = speaking
        seen.page.evaluate("release()")
        expect(seen.page.locator(".sample")).to_contain_text("WWWWW")
        expect(seen.page.locator("#lost")).to_be_hidden()
        assert seen.complaints == []


def test_a_monitor_that_was_upgraded(visit: Open, monkeypatch: pytest.MonkeyPatch) -> None:
    """An open page takes its new script and styles, too: they belong to what is put in."""
    with served(TrainedSwarm().site()) as url:
        seen = visit(url)
        seen.page.evaluate("window.loadedOnce = true")
        seen.renew()
        assert seen.page.evaluate("window.loadedOnce")
        before = site.content
        monkeypatch.setattr(site, "content", lambda name: before(name) + b"\n")
        with seen.page.expect_navigation():
            seen.renew()
        assert not seen.page.evaluate("window.loadedOnce")
        assert seen.complaints == []


CONTRAST = """
    const luminance = (color) => {
        const [r, g, b] = color.match(/[\\d.]+/g).map(Number).map((v) => v / 255)
            .map((v) => (v <= 0.04045 ? v / 12.92 : ((v + 0.055) / 1.055) ** 2.4));
        return 0.2126 * r + 0.7152 * g + 0.0722 * b;
    };
    const behind = (element) => {
        for (; element; element = element.parentElement) {
            const color = getComputedStyle(element).backgroundColor;
            if (!/^rgba\\(.*, [\\d.]+\\)$/.test(color)) return color;
        }
    };
    const contrast = (...colors) => {
        const [a, b] = colors.map(luminance).sort((a, b) => b - a);
        return (a + 0.05) / (b + 0.05);
    };
"""
CONTRASTS = f"""() => {{{CONTRAST}
    const texts = "h1, h2, small, dt, dd b, .note, .hint, td, th, .role, button, code, nav a, .legend li, a, "
        + ".sample, .prompt";
    return [...document.querySelectorAll(texts)].map((element) =>
        [contrast(getComputedStyle(element).color, behind(element)), element.outerHTML.slice(0, 80)]);
}}"""
# Of the words that an empty field shows, and of its border with what is around it.
CONTRASTS_OF_THE_FIELD = f"""() => {{{CONTRAST}
    const field = document.querySelector("input[name=peer]");
    const {{ color, opacity }} = getComputedStyle(field, "::placeholder");
    const border = getComputedStyle(field).borderTopColor;
    return [opacity == 1 ? contrast(color, behind(field)) : 0, contrast(border, behind(field.parentElement))];
}}"""


LAYOUT_SHIFT = """() => new Promise((done) => {
    const add = (list) => done(list.getEntries().reduce((sum, entry) => sum + entry.value, 0));
    new PerformanceObserver(add).observe({ type: "layout-shift", buffered: true });
    setTimeout(() => done(0), 500);
})"""


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_light_and_dark(visit: Open, scheme: Any) -> None:
    """Both schemes are what their names say, and all text and the field have the contrast of WCAG 2 AA."""
    with served(TrainedSwarm().site()) as url:
        page = visit(url, color_scheme=scheme).page
        background = page.evaluate("getComputedStyle(document.documentElement).backgroundColor")
        brightness = sum(int(part) for part in background[4:-1].split(","))
        assert (brightness > 3 * 128) == (scheme == "light")
        assert [text for ratio, text in page.evaluate(CONTRASTS) if ratio < 4.5] == []
        placeholder, border = page.evaluate(CONTRASTS_OF_THE_FIELD)
        assert placeholder >= 4.5
        assert border >= 3


def test_without_javascript(visit: Open) -> None:
    """With scripts off, the curve, the figures and the table are all there."""
    with served(TrainedSwarm().site()) as url:
        page = visit(url, java_script_enabled=False).page
        expect(page.locator("path.line.training")).to_be_visible()
        expect(page.locator("#peers tbody tr")).to_have_count(7)
        expect(page.locator("#copy")).to_be_hidden()
        page.get_by_role("link", name="tokens").click()
        expect(page.locator("nav a[aria-current]")).to_have_text("tokens")


@pytest.mark.parametrize("width", [1280, 360])
@pytest.mark.parametrize("scripts", [True, False])
def test_finds_a_contributor(visit: Open, width: int, scripts: bool, tmp_path: Path) -> None:
    """By the end of its id, with scripts or without, on a phone too; what is typed outlives a renewal."""
    swarm = TrainedSwarm()
    with served(swarm.site()) as url:
        seen = visit(url, width, java_script_enabled=scripts)
        page = seen.page
        sought = swarm.ledger.entries[3].peer_id
        field = page.get_by_label("Find a peer")
        field.fill(sought[-6:])
        if scripts:
            swarm.train()
            seen.renew()
            expect(field).to_have_value(sought[-6:])
        page.get_by_role("button", name="Find").click()
        found = page.locator("#contributors tr.found")
        expect(found).to_be_visible()
        expect(found.locator("td").first).to_have_text("4")
        expect(found.locator("th")).to_have_attribute("title", re.compile(re.escape(sought)))
        page.screenshot(path=tmp_path / f"contributors-{width}-{scripts}.png", full_page=True)
        place, name = (found.locator(one).bounding_box() for one in ("td:first-child", ".name"))
        assert place is not None
        assert name is not None
        assert place["x"] + place["width"] <= name["x"] + 1
        assert seen.overflow() <= 0


def test_renews_in_place(visit: Open) -> None:
    """New numbers appear without a reload and without the rest moving; selections stay."""
    swarm = TrainedSwarm()
    with served(swarm.site()) as url:
        seen = visit(url)
        page = seen.page
        page.evaluate("getSelection().selectAllChildren(document.getElementById('join-line'))")
        before = page.locator("path.line.training").get_attribute("d")
        swarm.train()
        seen.renew()
        expect(page.locator(".figure b").first).to_have_text("4")
        expect(page.locator("path.line.training")).not_to_have_attribute("d", str(before))
        assert page.evaluate("String(getSelection())").startswith("dupt-peer join")
        # The verdict may become wider; what Web Vitals calls a good page is ten times this.
        assert page.evaluate(LAYOUT_SHIFT) < 0.01
        assert seen.complaints == []


def test_another_swarm_at_the_same_place(visit: Open) -> None:
    """When the monitor now watches another swarm, an open page has its name and command, not only figures."""
    swarm = TrainedSwarm()
    with served(swarm.site()) as url:
        page = visit(url).page
        other = manifest_from_preset(
            "tiny", name="other", seed=1, tokenizer_sha256="0" * 64, vocabulary_size=512
        )
        swarm.snapshot = replace(swarm.snapshot, manifest=other)
        page.evaluate("void renew()")
        expect(page.locator("h1")).to_have_text("other")
        expect(page.locator("#join-line")).to_contain_text(f"--swarm {other.swarm_id}")


def test_another_way_to_the_swarm(visit: Open) -> None:
    """When its first peer tells of a better address, an open page has that in the command."""
    swarm = TrainedSwarm()
    addresses = ["/ip4/127.0.0.1/tcp/31330/p2p/QmFirst"]
    with served(Site(lambda: swarm.snapshot, swarm.history, addresses, lambda: NOW)) as url:
        seen = visit(url)
        expect(seen.page.locator("section.join .hint")).to_contain_text("own machine only")
        addresses[:] = [ADDRESS]
        seen.renew()
        expect(seen.page.locator("#join-line")).to_contain_text(ADDRESS)
        expect(seen.page.locator("section.join .hint")).not_to_contain_text("own machine only")


def test_monitor_goes_away(visit: Open) -> None:
    """When the monitor no longer answers, the page says so and keeps what it has."""
    with served(TrainedSwarm().site()) as url:
        seen = visit(url)
        expect(seen.page.locator("#lost")).to_be_hidden()
    seen.renew()
    expect(seen.page.locator("#lost")).to_be_visible()
    expect(seen.page.locator("#peers tbody tr")).to_have_count(7)


def test_values_under_the_pointer(visit: Open) -> None:
    """The pointer on the curve shows the losses there, and takes them along when it leaves."""
    with served(TrainedSwarm().site()) as url:
        page = visit(url).page
        page.locator(".plot").hover(position={"x": 300, "y": 100})
        tip = page.locator(".tip")
        expect(tip).to_contain_text("training")
        expect(tip).to_contain_text("round 3")
        page.locator("h1").hover()
        expect(tip).to_have_count(0)


def test_copies_the_join_line(visit: Open) -> None:
    """The button puts the whole command into the clipboard."""
    with served(TrainedSwarm().site()) as url:
        page = visit(url, permissions=["clipboard-read", "clipboard-write"]).page
        page.get_by_role("button", name="Copy").click()
        expect(page.locator("#copy")).to_have_text("Copied")
        line = page.evaluate("navigator.clipboard.readText()")
        assert re.fullmatch(
            f"dupt-peer join --initial-peers {re.escape(ADDRESS)} --swarm test-[0-9a-f]{{12}} --corpus PATH",
            line,
        )


def test_few_requests(visit: Open) -> None:
    """Opening the page takes the page and its three files, all from the monitor."""
    asked: list[str] = []
    with served(TrainedSwarm().site()) as url:
        seen = visit("about:blank")
        seen.hosts.clear()
        seen.page.on("request", lambda request: asked.append(request.url))
        seen.page.goto(url, wait_until="networkidle")
    assert len(asked) <= 1 + ASSETS
    assert seen.hosts == {url.split("/")[2]}
