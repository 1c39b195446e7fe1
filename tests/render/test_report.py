"""The HTML page: what it says, that it is safe with any record, and that it asks for nothing."""

from __future__ import annotations

import base64
import hashlib
import json
import re
from collections.abc import Callable
from html.parser import HTMLParser
from typing import Any

import pytest
from tests.support.hostile import HOSTILE, records
from tests.support.packed import unpacked
from tests.support.predictions import prediction

from memlens.allocator import replay
from memlens.explanation.prediction_record import remember
from memlens.model import (
    Alloc,
    Category,
    Free,
    Mark,
    Process,
    Sample,
    Site,
    Trace,
)
from memlens.model.lines import LineRow, LineTable
from memlens.render.report import html, to_html
from memlens.render.report.page import page_of
from memlens.units import MIB

Run = Callable[[], Trace]
VOID = {"meta", "img"}


class Parsed(HTMLParser):
    """The page as a browser sees it: elements with attributes, and the text of scripts apart."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.elements: list[tuple[str, dict[str, str | None]]] = []
        self.scripts: list[tuple[str | None, str]] = []
        self.text = ""
        self._open: list[str] = []
        self.feed(text)
        self.close()

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.elements.append((tag, dict(attrs)))
        if tag not in VOID:
            self._open.append(tag)
        if tag == "script":
            self.scripts.append((dict(attrs).get("type"), ""))

    def handle_startendtag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.elements.append((tag, dict(attrs)))

    def handle_endtag(self, tag: str) -> None:
        assert self._open[-1:] == [tag], f"</{tag}> closes {self._open[-3:]}"
        self._open.pop()

    def handle_data(self, data: str) -> None:
        if self._open[-1:] == ["script"]:
            kind, before = self.scripts[-1]
            self.scripts[-1] = (kind, before + data)
        elif self._open[-1:] != ["style"]:
            self.text += data

    @property
    def charts(self) -> list[dict[str, Any]]:
        return [json.loads(text) for kind, text in self.scripts if kind == "application/json"]


def parse(trace: Trace, **options: Any) -> Parsed:
    return Parsed(to_html(trace, "record", **options))


def placed() -> Trace:
    """Two steps of 24 + 8 MiB on a card."""
    line, other = Site("train.py", 12, "step"), Site("net.py", 9, "forward", "layers.0", "Linear", "addmm")
    events = [
        Alloc(0, 24 * MIB, Category.ACTIVATION, other, time_us=0),
        Alloc(1, 8 * MIB, Category.GRADIENT, line, time_us=1_000_000),
        Free(0, time_us=2_000_000),
        Alloc(2, 12 * MIB, Category.TEMPORARY, line, time_us=3_000_000),
    ]
    return replay(Trace("measured", events, metadata={"started_us": 0}))


@pytest.mark.parametrize("number", range(3))
def test_a_hostile_record_is_only_text(run: Run, number: int) -> None:
    """Whatever stands in a record is text: no element of its making, no handler, no address."""
    found = Parsed(to_html(records(run())[number], HOSTILE))
    names = {tag for tag, _ in found.elements}
    assert not names & {"img", "iframe", "object", "embed", "form", "base", "link"}
    assert [tag for tag, _ in found.elements].count("b") == 1  # memlens' own name
    handlers = [name for _, attributes in found.elements for name in attributes if name.startswith("on")]
    assert handlers == []
    links = [attributes["href"] for tag, attributes in found.elements if tag == "a"]
    assert all(link is not None and re.fullmatch(r"#[a-z0-9-]+", link) for link in links)
    assert HOSTILE in found.text
    assert [kind for kind, _ in found.scripts].count(None) == 2


@pytest.mark.parametrize("number", range(3))
def test_names_in_charts_come_back_as_they_were(run: Run, number: int) -> None:
    """Inside <script> no `<` is left, and JSON gives the name back character by character."""
    text = to_html(records(run())[number], "x")
    inside = re.findall(r'<script type="application/json">(.*?)</script>', text, re.DOTALL)
    assert inside
    assert not any(sign in each for each in inside for sign in "<>&\u2028")
    assert HOSTILE in json.dumps([json.loads(each) for each in inside], ensure_ascii=False).replace(
        json.dumps(HOSTILE, ensure_ascii=False)[1:-1], HOSTILE
    )


def test_the_page_asks_for_nothing(run: Run) -> None:
    """No element has an address outside the page, and the policy allows no request and two scripts only."""
    for trace in (run(), placed(), remember(prediction()).trace):
        text = to_html(trace, "record")
        found = Parsed(text)
        for tag, attributes in found.elements:
            assert not {"src", "srcset", "action", "data", "poster", "background"} & set(attributes), tag
            assert attributes.get("href", "#").startswith("#")
        own = html._asset("page.js") + html._asset("page.css")
        assert not re.search(r"https?:|//[a-z]|fetch\(|XMLHttp|import\(|@import|url\(", own)
        policy = next(a["content"] for t, a in found.elements if a.get("http-equiv"))
        hashes = [
            f"'sha256-{base64.b64encode(hashlib.sha256(script.encode()).digest()).decode()}'"
            for kind, script in found.scripts
            if kind is None
        ]
        assert policy == (
            f"default-src 'none'; script-src {' '.join(hashes)}; style-src 'unsafe-inline'; "
            "img-src data: blob:; base-uri 'none'; form-action 'none'"
        )


def test_the_check_finds_an_address() -> None:
    """The reader above, broken once on purpose: it sees an image that a page would load."""
    found = Parsed('<p><img src="https://x.org/a.png" onerror="x"></p>')
    assert ("img", {"src": "https://x.org/a.png", "onerror": "x"}) in found.elements
    with pytest.raises(AssertionError, match="closes"):
        Parsed("<p><i></p>")


def test_the_answer_of_a_prediction_comes_first() -> None:
    """42 MiB of 64: 40 reserved and 2 of context, with its range, in green; the card is a line."""
    made = remember(prediction()).trace
    page = page_of(made, "x")
    assert page.head.headline == "Fits a test card: needs 42.00 MiB of 64.00 MiB, 22.00 MiB to spare"
    assert page.head.tone == "good"
    facts = {fact.name: (fact.value, fact.note) for fact in page.head.facts}
    assert facts["process at the peak"] == ("42.00 MiB", "between 40.00 MiB and 52.00 MiB")
    assert page_of(remember(prediction(41 * MIB)).trace, "x").head.tone == "bad"
    assert page_of(remember(prediction(45 * MIB)).trace, "x").head.tone == "warn"
    assert [section.key for section in page.sections] == [
        "course", "holders", "steps", "unused", "assumptions", "about",
    ]  # fmt: skip
    rule = {"y": 62 * MIB, "text": "the card, less the CUDA context"}
    assert parse(made).charts[0]["rules"] == [rule]
    assert parse(remember(prediction(41 * MIB)).trace).charts[0]["rules"][0]["y"] == 39 * MIB  # below the 40


def test_who_holds_the_peak_adds_up() -> None:
    """The categories of the peak are 42 MiB in all; lines close over the 36 that are allocated."""
    page = page_of(remember(prediction()).trace, "x", top=1)
    categories, lines, *_ = next(s for s in page.sections if s.key == "holders").blocks
    assert [(row[0].text, row[1].text) for row in categories.rows] == [
        ("optimizer state", "16.00"), ("parameters", "8.00"), ("gradients", "8.00"), ("unknown", "4.00"),
        ("reserved, unused", "4.00"), ("CUDA context", "2.00"), ("in all", "42.00"),
    ]  # fmt: skip
    assert [(row[0].text, row[1].text) for row in lines.rows] == [
        ("no line is known", "24.00"),
        ("1 more", "12.00"),
    ]


def test_the_curve_has_whole_bytes_and_the_peak() -> None:
    """36 MiB at event 9, by category; allocated is their sum at every point."""
    chart = parse(remember(prediction()).trace).charts[0]
    areas = {area["name"]: unpacked(area["y"]) for area in chart["areas"]}
    allocated, reserved = (unpacked(line["y"]) for line in chart["lines"])
    assert max(allocated) == 36 * MIB == allocated[chart["moment"]["x"]]
    assert max(reserved) == 40 * MIB
    assert [sum(sizes) for sizes in zip(*areas.values(), strict=True)] == allocated
    assert chart["axis"] == "events"
    assert [band["text"] for band in chart["bands"]][-2:] == ["forward 2", "backward 2"]


def test_a_run_is_drawn_by_process(run: Run) -> None:
    """Program and child stacked, 40 MiB together; calls of two functions; the mark; who was there."""
    found = parse(run())
    chart = found.charts[0]
    assert [(area["name"], max(unpacked(area["y"]))) for area in chart["areas"]] == [
        ("python train.py (7)", 20 * MIB),
        ("python worker.py (8)", 20 * MIB),
    ]
    assert max(unpacked(chart["lines"][0]["y"])) == 40 * MIB
    assert [(call["name"], len(call["spans"])) for call in chart["calls"]] == [
        ("__main__.step", 2),
        ("__main__.load", 1),
    ]
    assert chart["marks"] == [{"x": 1_000_000, "text": "loaded"}]
    assert "Peak of 40.00 MiB after 2.00 s, 1 child included" in found.text
    assert "train.py: exit code 0 after 4.00 s." in found.text


def test_why_it_ran_out_is_told() -> None:
    """6 MiB pin a segment of 36, and 50 do not fit in 80: the cause, in red."""
    line = Site("train.py", 4, "step")
    events = [Alloc(0, 36 * MIB), Free(0), Alloc(1, 6 * MIB, site=line), Alloc(2, 50 * MIB, site=line)]
    page = page_of(replay(Trace("measured", events), capacity_bytes=80 * MIB), "x")
    assert page.head.tone == "bad"
    assert page.head.headline.startswith("Ran out of memory: could not allocate 50.00 MiB.")
    failure = next(section for section in page.sections if section.key == "failures").blocks[0]
    assert "this is fragmentation" in failure.text


def test_other_devices_of_a_snapshot_are_named() -> None:
    """A page shows one device; that there are more, and how to see them, is said."""
    trace = placed()
    trace.metadata |= {"device": 0, "devices": [0, 1]}
    assert page_of(trace, "x").head.said == [
        "Also recorded: cuda:1. memlens snapshot --device N -o page.html shows one of them."
    ]
    assert page_of(placed(), "x").head.said == []


def test_the_map_shows_all_reserved_memory() -> None:
    """Sixteen rows; used and free pieces fill them from end to end, and the pools are told beside it."""
    page = page_of(placed(), "x")
    table, strip = next(section for section in page.sections if section.key == "unused").blocks
    assert [[cell.text for cell in row[:3]] for row in table.rows] == [
        ["small", "0", "0.00"],
        ["large", "2", "44.00"],
    ]
    assert len(strip.rows) == 16
    for row in strip.rows:
        assert sum(width for _, width, _ in row) == pytest.approx(100, abs=0.1)
    free = sum(width for row in strip.rows for _, width, colour in row if colour == "free")
    assert free / 1600 == pytest.approx(12 / 44, abs=0.01)


def test_line_tables_are_on_the_page(run: Run) -> None:
    """A function's lines with their figures, source indented as it is."""
    trace = run()
    rows = (LineRow(1, "def f():", 1, 5 * MIB, 5 * MIB), LineRow(2, "    x = 1", 3, 6 * MIB, MIB, MIB))
    trace.metadata["lines"] = [LineTable("a.py", "f", 1, 1, 5 * MIB, rows).to_dict()]
    section = next(section for section in page_of(trace, "x").sections if section.key == "lines")
    assert [cell.text for cell in section.blocks[0].rows[1]] == ["2", "6.00", "1.00", "3", "1.0", "    x = 1"]
    trace.metadata["lines"] = [{"file": "of another version"}]
    assert all(section.key != "lines" for section in page_of(trace, "x").sections)


def test_a_long_record_stays_small() -> None:
    """120,000 events are thinned out, below 8 MB, the page says so and both peaks are exact."""
    sites = [Site(f"f{n}.py", n, module=f"layers.{n}", operator=f"op{n}") for n in range(500)]
    events: list[Alloc | Free] = []
    for number in range(60_000):
        events.append(
            Alloc(number, 512 * (1 + number % 999), list(Category)[number % 9], sites[number % 500])
        )
        if number >= 400:
            events.append(Free(number - 400))
    trace = replay(Trace("predicted", events))
    trace.marks = [Mark("step", index, index) for index in range(0, len(trace.events), 50)]
    text = to_html(trace, "long")
    assert len(text.encode()) < 8_000_000
    chart = Parsed(text).charts[0]
    assert max(unpacked(chart["lines"][0]["y"])) == trace.timeline().peak_allocated_bytes
    assert max(unpacked(chart["lines"][1]["y"])) == trace.timeline().peak_reserved_bytes
    assert "Both peaks are exact." in text


def test_a_long_run_keeps_every_peak() -> None:
    """30,000 readings of three processes are thinned out; each one's highest is drawn."""
    events = [
        Sample(t * 1000, pid, (100 + (t * (pid + 3)) % 977) * MIB) for t in range(10_000) for pid in (7, 8, 9)
    ]
    trace = Trace("measured", [*events], metadata={"command": "x"})
    trace.processes = [Process(7, "a"), Process(8, "b", 7), Process(9, "c", 7)]
    chart = parse(trace).charts[0]
    assert len(unpacked(chart["x"])) <= 8003
    assert [max(unpacked(area["y"])) for area in chart["areas"]] == [1076 * MIB] * 3


def test_both_halves_of_a_memray_capture_are_shown(run: Run) -> None:
    """Allocations first, then the process; no id twice."""
    trace = placed()
    trace.events += run().events
    trace.metadata["format"] = "memray"
    keys = [section.key for section in page_of(trace, "x").sections]
    assert keys == ["course", "holders", "unused", "course-2", "holders-2", "about"]


def test_an_empty_record_is_a_page() -> None:
    """It says that there is nothing to show."""
    assert "This record holds no memory" in parse(Trace("measured")).text
