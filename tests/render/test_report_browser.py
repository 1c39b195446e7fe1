"""The page in a real browser: it draws, asks for nothing, runs nothing of the record, fits every width."""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from tests.support.desk import placed, sampled
from tests.support.hostile import HOSTILE, records
from tests.support.predictions import prediction

from memlens.explanation.prediction_record import remember
from memlens.render.report import to_html

pytest.importorskip("jinja2")
pytest.importorskip("plotly")
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
        self.wait("[...document.querySelectorAll('.curve')].every(plot => plot.querySelector('svg'))")

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


def test_no_button_of_a_chart_sends_it_anywhere(browser: Any, tmp_path: Path) -> None:
    """plotly's bar has a button that uploads the chart, and more come with its versions: four are named."""
    opened = Opened(browser, write(tmp_path, placed()))
    titles = opened.page.evaluate(
        "[...document.querySelectorAll('.modebar-btn')].map(b => b.dataset.title.toLowerCase())"
    )
    assert titles == ["download plot as a png", "zoom", "pan", "reset axes"]


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


def test_the_chart_follows_the_scheme_and_tells_values(browser: Any, tmp_path: Path) -> None:
    """Colours change with the system's scheme; at the peak the pointer shows 36 MiB and the phase."""
    opened = Opened(browser, write(tmp_path, remember(prediction()).trace))
    ink = "document.querySelector('.curve').layout.font.color"
    assert opened.page.evaluate(ink) == "#1c2330"
    opened.page.emulate_media(color_scheme="dark")
    opened.wait(f"{ink} === '#e4e8ee'")
    box = opened.page.locator(".curve .nsewdrag").first.bounding_box()
    opened.page.mouse.move(box["x"] + box["width"] * 0.9, box["y"] + box["height"] / 2)
    opened.page.wait_for_selector(".curve .hoverlayer .legend")
    told = opened.page.locator(".curve .hoverlayer").text_content()
    assert "allocated : 36.000 MiB" in told
    assert "backward, step 2" in told
