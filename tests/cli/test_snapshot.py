"""`memlens snapshot`."""

from __future__ import annotations

import json
import pickle
import subprocess
import sys
from pathlib import Path

import pytest
from click.testing import CliRunner

from memlens.allocator import replay
from memlens.cli.commands.compare import command as compare
from memlens.cli.commands.peak import command as peak
from memlens.cli.commands.plot import command as plot
from memlens.cli.commands.snapshot import command
from memlens.cli.main import COMMANDS
from memlens.errors import UsageError
from memlens.model import Alloc, Frame, Free, Mark, Site, Trace
from memlens.records import load, native
from memlens.records.snapshot_writer import dumps, snapshot_dict
from memlens.units import MIB


@pytest.fixture
def file(tmp_path: Path) -> Path:
    """A program that fills a device of 80 MiB: 6 MiB pin a segment of 36, and 50 do not fit."""
    line = Site("train.py", 4, "step")
    events = [
        Alloc(0, 36 * MIB, site=line, time_us=0),
        Free(0, time_us=1_000_000),
        Alloc(1, 6 * MIB, site=Site("net.py", 9, "forward"), time_us=2_000_000),
        Alloc(2, 50 * MIB, site=line, time_us=3_000_000),
    ]
    path = tmp_path / "snapshot.pickle"
    path.write_bytes(dumps(replay(Trace("measured", events), capacity_bytes=80 * MIB)))
    return path


def document(*arguments: str) -> dict[str, object]:
    result = CliRunner().invoke(command, [*arguments, "--json"], catch_exceptions=False)
    found: dict[str, object] = json.loads(result.output)
    return found


def test_the_json_contract(file: Path) -> None:
    """Peak, holders, pools and the replay, under the names that the docs give."""
    shown = document(str(file), "--replay")
    assert shown["schema"] == "memlens.snapshot/1"
    assert shown["peak"] == {
        "allocated_bytes": 36 * MIB,
        "block_bytes": 36 * MIB,
        "reserved_bytes": 36 * MIB,
        "event": 1,
    }
    assert shown["at"]["holders"] == [{"line": "train.py:4", "bytes": 36 * MIB, "allocations": 1}]  # type: ignore[index]
    assert shown["pools"][1]["largest_free_bytes"] == 30 * MIB  # type: ignore[index]
    assert shown["replay"] == {
        "allocations": 2,
        "address_mismatches": 0,
        "segment_mismatches": 0,
        "recorded_reserved_bytes": 36 * MIB,
        "replayed_reserved_bytes": 36 * MIB,
        "complete": True,
    }


def test_no_history_is_said(tmp_path: Path) -> None:
    """A snapshot whose program never called _record_memory_history has a state and no events: it says how to
    have some, and names no event -1; one of nothing at all is no run without resident memory."""
    bare = {"segments": [], "device_traces": [[]], "allocator_settings": {}}
    block = {
        "size": 1024,
        "requested_size": 1000,
        "address": 2**30,
        "state": "active_allocated",
        "frames": [],
    }
    segment = {
        "device": 0, "address": 2**30, "total_size": 2 * MIB, "stream": 0, "segment_type": "small",
        "is_expandable": False, "segment_pool_id": (0, 0), "blocks": [block],
    }  # fmt: skip
    path = tmp_path / "state.pickle"
    path.write_bytes(pickle.dumps({**bare, "segments": [segment]}))
    printed = CliRunner().invoke(command, [str(path)], catch_exceptions=False).output
    assert printed.startswith(
        "0.00 MiB allocated, 2.00 MiB reserved on cuda:0 when it was written\nno event was"
    )
    assert "_record_memory_history()" in printed
    assert "event -1" not in printed
    path.write_bytes(pickle.dumps(bare))
    with pytest.raises(UsageError, match="holds no allocated memory"):
        CliRunner().invoke(plot, [str(path)], catch_exceptions=False)


@pytest.mark.shared
def test_every_command_tells_the_same_peak(shared: Path) -> None:
    """This snapshot's requests add up to 1,703.84 MiB; the blocks, rests that were not worth splitting off
    included, to 1,707.93. All commands say the second."""
    file = str(shared / "truth" / "snapshots" / "opt_zeroth_order_training.pickle")
    for words, said in (
        ([command, file], "peak 1,707.93 MiB allocated"),
        ([compare, file, file, "--by", "total"], "1,707.93  1,707.93"),
        ([peak, file], "1707.930 MiB"),
        ([plot, file], "peak 1.67 GiB allocated"),
    ):
        assert said in CliRunner().invoke(words[0], words[1:], catch_exceptions=False).output


def test_at_shows_another_moment(file: Path) -> None:
    """After 2.5 s only the 6 MiB of net.py are alive, in a pool of which 30 are free."""
    shown = document(str(file), "--at", "2.5")
    assert shown["at"]["holders"] == [{"line": "net.py:9", "bytes": 6 * MIB, "allocations": 1}]  # type: ignore[index]


def test_why_it_ran_out(file: Path) -> None:
    """The terminal says that it was fragmentation and that expandable segments would have helped."""
    output = " ".join(CliRunner().invoke(command, [str(file)], catch_exceptions=False).output.split())
    assert "A request of 50.00 MiB at train.py:4 failed with 44.00 MiB left on the device." in output
    assert "this is fragmentation" in output
    assert "expandable_segments:True, the same requests fit" in output
    assert "peak 36.00 MiB allocated" in output


def test_output_is_not_overwritten(file: Path, tmp_path: Path) -> None:
    """-o writes once; --force writes again; .pickle writes a snapshot that reads the same."""
    out, again = tmp_path / "out.json", tmp_path / "again.pickle"
    run = CliRunner().invoke
    assert run(command, [str(file), "-o", str(out)]).exit_code == 0
    assert isinstance(run(command, [str(file), "-o", str(out)]).exception, UsageError)
    assert run(command, [str(file), "-o", str(out), "--force"]).exit_code == 0
    assert run(command, [str(file), "-o", str(again)]).exit_code == 0
    assert document(str(again))["peak"] == document(str(file))["peak"] == json.loads(out.read_text())["peak"]


@pytest.mark.parametrize("ending", [".txt", ".html", ".memlens"])
def test_each_ending_is_a_format(file: Path, tmp_path: Path, ending: str) -> None:
    """What the terminal shows, a page, or every event as memlens keeps them; another ending is refused."""
    out = tmp_path / f"out{ending}"
    assert CliRunner().invoke(command, [str(file), "-o", str(out)], catch_exceptions=False).exit_code == 0
    if ending == ".memlens":
        assert load(out).timeline().peak_allocated_bytes == 36 * MIB
    else:
        assert "this is fragmentation" in " ".join(out.read_text().split())
    error = CliRunner().invoke(command, [str(file), "-o", str(tmp_path / "out.csv")]).exception
    assert ".html (a page)" in str(error)


def test_the_page_of_another_moment(file: Path, tmp_path: Path) -> None:
    """--at and --top hold for the page too: after 2.5 s the 6 MiB of net.py are all there is."""
    out = tmp_path / "out.html"
    CliRunner().invoke(command, [str(file), "-o", str(out), "--at", "2.5"], catch_exceptions=False)
    text = out.read_text()
    assert "Who holds memory at event 3" in text
    assert "net.py:9" in text
    assert "train.py:4</span>" not in text


def test_a_record_of_another_kind_is_named(tmp_path: Path) -> None:
    """A memlens record is no torch snapshot: the commands that read it are said."""
    native.save(Trace("measured", [Alloc(1, 512)]), tmp_path / "x.memlens")
    error = CliRunner().invoke(command, [str(tmp_path / "x.memlens")]).exception
    assert isinstance(error, UsageError)
    assert "no torch snapshot but a record of another kind: memlens record" in str(error)
    assert "memlens report, plot, peak and compare read it" in str(error)


def test_a_page_of_it(file: Path, tmp_path: Path) -> None:
    """-o FILE.html writes what `memlens report` does."""
    page = tmp_path / "page.html"
    result = CliRunner().invoke(command, [str(file), "-o", str(page)], catch_exceptions=False)
    assert result.output == f"wrote {page}\n"
    assert page.read_text(encoding="utf-8").lower().startswith("<!doctype html>")


def test_a_bad_file_is_one_line_and_exit_code_2(tmp_path: Path) -> None:
    """A text file gets one error with its path, no traceback."""
    path = tmp_path / "notes.txt"
    path.write_text("not a snapshot")
    result = subprocess.run(
        [sys.executable, "-m", "memlens", "snapshot", str(path)], capture_output=True, text=True, check=False
    )
    assert result.returncode == 2
    assert result.stderr.startswith(f"memlens: cannot read {path}: it is no pickle")
    assert "Traceback" not in result.stderr


def test_torch_is_not_imported(file: Path) -> None:
    """Reading a snapshot costs no import of torch."""
    code = (
        "import sys; from memlens.cli.commands.snapshot import command;"
        f"command(['{file}', '--replay'], standalone_mode=False); assert 'torch' not in sys.modules"
    )
    subprocess.run([sys.executable, "-c", code], check=True, capture_output=True)


def test_the_command_is_listed() -> None:
    """It is one row of the table."""
    assert "snapshot" in COMMANDS


@pytest.mark.torch
def test_pytorchs_own_viewer_opens_what_is_written(file: Path) -> None:
    """torch.cuda._memory_viz makes its page and its text trace of the file."""
    memory_viz = pytest.importorskip("torch.cuda._memory_viz")
    data = pickle.loads(file.read_bytes())
    assert "Active Memory Timeline" in memory_viz.trace_plot(data)
    assert "36.0MiB" in memory_viz.trace(data)


def test_growth_from_step_to_step(tmp_path: Path) -> None:
    """Four steps that leave 2 MiB each behind: the terminal says so."""
    events = [Alloc(number, 2 * MIB) for number in range(4)]
    trace = replay(Trace("measured", events, marks=[Mark("step", number, number + 1) for number in range(4)]))
    path = tmp_path / "growing.pickle"
    path.write_bytes(dumps(trace))
    assert document(str(path))["growth"] == {
        "mark": "step",
        "inferred": False,
        "allocated_bytes": [0, 2 * MIB, 4 * MIB, 6 * MIB],
        "bytes_per_step": 2 * MIB,
        "lines": [{"line": "no stack recorded", "bytes_per_step": 2 * MIB}],
    }
    assert "+2.00 MiB each" in " ".join(CliRunner().invoke(command, [str(path)]).output.split())


def test_modules_and_steps_that_only_the_stacks_tell(tmp_path: Path) -> None:
    """PyTorch's own recording of four steps: a module by its calls, and growth by the loop's line."""
    call = Frame("/x/torch/nn/modules/module.py", 1787, "_call_impl")
    forward = Frame("project/net.py", 9, "forward")
    events = [
        Alloc(number, 2 * MIB, site=Site("net.py", 9, "forward", frames=(forward, call, main)))
        for number, main in enumerate(4 * (Frame("train.py", 20, "main"), Frame("train.py", 21, "main")))
    ]
    path = tmp_path / "plain.pickle"
    data = snapshot_dict(replay(Trace("measured", events)))
    for event in data["device_traces"][0]:
        event.pop("user_metadata", None)  # which PyTorch does not write
    path.write_bytes(pickle.dumps(data))
    shown = document(str(path))
    assert shown["at"]["modules"] == [  # type: ignore[index]
        {"module": "project/net.py:forward", "bytes": 16 * MIB, "allocations": 8, "inferred": True}
    ]
    assert shown["growth"]["mark"] == "train.py:20 in main"  # type: ignore[index]
    printed = " ".join(CliRunner().invoke(command, [str(path)]).output.split())
    assert "by module, inferred from the forward calls in the stacks" in printed
    assert "+4.00 MiB each: project/net.py:9" in printed
    assert "no step is named in the recording" in printed
