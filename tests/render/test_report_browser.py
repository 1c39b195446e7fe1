"""The page in a real browser: it draws, asks for nothing, runs nothing of the record, fits every width."""

from __future__ import annotations

import shutil
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from tests.support.desk import placed, sampled
from tests.support.hostile import HOSTILE, records
from tests.support.predictions import prediction

from memlens.explanation.prediction_record import remember
from memlens.model import Alloc, Category, Free, Site, Trace
from memlens.render.report import to_html

playwright = pytest.importorskip("playwright.sync_api", exc_type=ImportError)
CHROMIUM = next(filter(None, map(shutil.which, ("chromium", "chromium-browser", "google-chrome"))), None)
pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(CHROMIUM is None, reason="no Chromium is installed here"),
]


class Opened:
    """A page and everything that the browser said about it."""

    def __init__(self, browser: Any, path: Path, width: int = 1600, scheme: str = "light") -> None:
        self.context = browser.new_context(
            viewport={"width": width, "height": 900}, color_scheme=scheme, offline=True
        )
        self.page = self.context.new_page()
        self.said: list[str] = []
        self.requests: list[str] = []
        self.page.on("console", lambda message: self.said.append(message.text))
        self.page.on("pageerror", lambda error: self.said.append(str(error)))
        self.page.on("dialog", lambda dialog: self.said.append(dialog.message))
        self.page.on("request", lambda request: self.requests.append(request.url))
        self.page.goto(path.as_uri())
        self.wait("[...document.querySelectorAll('.curve')].every(plot => plot.querySelector('canvas'))")

    def wait(self, expression: str) -> None:
        """Until it is true; playwright's own waiting evaluates text, which the page's policy forbids."""
        for _ in range(100):
            if self.page.evaluate(expression):
                return
            self.page.wait_for_timeout(50)
        raise AssertionError(f"never true: {expression}; the browser said {self.said}")


@pytest.fixture(scope="module")
def browser() -> Iterator[Any]:
    with playwright.sync_playwright() as started:
        found = started.chromium.launch(executable_path=CHROMIUM, args=["--no-sandbox"])
        yield found
        found.close()


def write(folder: Path, trace: Any, name: str = "record") -> Path:
    path = folder / "page.html"
    path.write_text(to_html(trace, name), encoding="utf-8")
    return path


@pytest.mark.parametrize("number", range(3))
def test_a_hostile_record_runs_nothing(browser: Any, run: Any, tmp_path: Path, number: int) -> None:
    """No dialog, no error, no request but the file itself; the hostile name is there as text."""
    opened = Opened(browser, write(tmp_path, records(run())[number], HOSTILE))
    assert (opened.said, len(opened.requests)) == ([], 1)
    assert HOSTILE in opened.page.evaluate("document.body.textContent")
    assert (
        opened.page.evaluate(
            "document.querySelectorAll('img, b:not(.kind b), a[href]:not([href^=\"#\"])').length"
        )
        == 0
    )


@pytest.mark.parametrize("width", [400, 1600])
@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_no_width_needs_scrolling_sideways(browser: Any, tmp_path: Path, width: int, scheme: str) -> None:
    """A phone and a wide screen, light and dark: as wide as the window, on paper of the scheme."""
    for trace in (sampled(), placed(), remember(prediction()).trace):
        opened = Opened(browser, write(tmp_path, trace), width, scheme)
        assert opened.page.evaluate("document.documentElement.scrollWidth") == width
        paper = opened.page.evaluate("getComputedStyle(document.body).backgroundColor")
        assert paper == ("rgb(255, 255, 255)" if scheme == "light" else "rgb(20, 23, 28)")
        assert opened.said == []


def test_a_heading_sorts_its_column(browser: Any, tmp_path: Path) -> None:
    """The first click puts the largest first, the second the smallest; names go by the alphabet."""
    opened = Opened(browser, write(tmp_path, remember(prediction()).trace))
    table = opened.page.locator("#holders table").first

    def column(number: int) -> list[str]:
        return [text.strip() for text in table.locator(f"tbody td:nth-child({number})").all_inner_texts()]

    table.locator("th button").nth(1).click()
    assert column(2) == ["42.00", "16.00", "8.00", "8.00", "4.00", "4.00", "2.00"]
    table.locator("th button").nth(1).click()
    assert column(2)[0] == "2.00"
    table.locator("th button").nth(0).click()
    assert column(1) == sorted(column(1), key=str.lower)


def bytes_shown(page: Any, selector: str) -> dict[str, int]:
    """The rows of a table at a moment: name and exact bytes."""
    script = (
        f"[...document.querySelectorAll('{selector} tr')]"
        ".map(row => [row.cells[0].textContent.trim(), Number(row.cells[1].dataset.bytes)])"
    )
    return dict(page.evaluate(script))


def test_the_chart_follows_the_scheme_and_tells_values(browser: Any, tmp_path: Path) -> None:
    """Curves are drawn anew for the other scheme; under the pointer the legend tells sizes and the phase."""
    opened = Opened(browser, write(tmp_path, remember(prediction()).trace))
    opened.page.evaluate("document.querySelector('.curve .uplot').dataset.before = 'yes'")
    opened.page.emulate_media(color_scheme="dark")
    opened.wait("!document.querySelector('.curve .uplot').dataset.before")
    box = opened.page.locator(".curve .u-over").first.bounding_box()
    opened.page.mouse.move(box["x"] + box["width"] * 0.9, box["y"] + box["height"] / 2)
    told = " ".join(opened.page.locator(".curve .u-legend").first.inner_text().split())
    assert "allocated36.000 MiB" in told.replace("allocated ", "allocated")
    assert "backward, step 2" in told
    assert opened.said == []


def test_a_click_tells_who_held_memory_then(browser: Any, tmp_path: Path) -> None:
    """At the peak first, then wherever the curve is clicked or the arrow keys lead, to the byte."""
    trace = remember(prediction()).trace
    opened = Opened(browser, write(tmp_path, trace))
    box = opened.page.locator(".curve .u-over").first.bounding_box()

    def shown() -> dict[str, int]:
        return bytes_shown(opened.page, ".moment .block:first-child")

    def held(index: int) -> dict[str, int]:
        return {key.label: size for key, size in trace.breakdown(index).by_category().items()}

    peak = trace.timeline().peak_index
    assert shown() == held(peak)
    opened.page.mouse.click(box["x"] + 1, box["y"] + box["height"] / 2)
    assert shown() == held(0)
    opened.page.keyboard.press("End")
    assert shown() == held(len(trace.events) - 1)
    opened.page.keyboard.press("ArrowLeft")
    assert shown() == held(len(trace.events) - 2)
    assert opened.said == []


def test_modules_fold_into_a_tree(browser: Any, tmp_path: Path) -> None:
    """The sums of the tree's top are what the modules below them hold."""
    sites = ["layers.0.attn", "layers.0.mlp", "layers.1.attn", "head", None]
    events = [
        Alloc(n, 1 << (20 + n), site=Site("net.py", n + 1, module=path)) for n, path in enumerate(sites)
    ]
    opened = Opened(browser, write(tmp_path, Trace("predicted", events)))
    script = (
        "[...document.querySelectorAll('.tree > li')].map(row => [row.querySelector('span').dataset.bytes,"
        " (row.querySelector('summary') || row).lastChild.textContent])"
    )
    assert opened.page.evaluate(script) == [
        [str(16 << 20), "(outside every module)"],
        [str(8 << 20), "head"],
        [str(7 << 20), "layers"],
    ]


def test_calls_are_drawn_below_and_told_under_the_pointer(browser: Any, run: Any, tmp_path: Path) -> None:
    """A function's row says how long a call took and how memory changed."""
    trace = run()
    opened = Opened(browser, write(tmp_path, trace))
    assert opened.page.locator("canvas.calls").count() == (1 if trace.spans else 0)
    assert opened.said == []


def test_a_large_record_is_a_small_page(browser: Any, tmp_path: Path) -> None:
    """100,000 events: under 3 MB, and it answers a click within two seconds of being opened."""
    events: list[Any] = []
    for number in range(50_000):
        site = Site("train.py", number % 40, module=f"layers.{number % 48}.mlp", operator="mm")
        events.append(Alloc(number, 512 * (1 + number * 7919 % 4096), Category.ACTIVATION, site))
        if number >= 200:
            events.append(Free(number - 200))
    path = write(tmp_path, Trace("predicted", events))
    assert path.stat().st_size < 3_000_000
    started = time.perf_counter()
    opened = Opened(browser, path)
    box = opened.page.locator(".curve .u-over").first.bounding_box()
    opened.page.mouse.click(box["x"] + box["width"] / 2, box["y"] + 20)
    assert time.perf_counter() - started < 4  # twice what is promised: the machine has other work
    assert bytes_shown(opened.page, ".moment .block:first-child")["activations"] > 0
