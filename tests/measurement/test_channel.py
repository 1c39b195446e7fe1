"""What programs say of themselves: marks and other lines, from any process, never blocking it."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from memlens import mark
from memlens.measurement.child.channel import VARIABLE, Listener, say


@pytest.fixture
def channel(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """An open channel, as `memlens run` makes one."""
    path = tmp_path / "channel"
    path.touch()
    monkeypatch.setenv(VARIABLE, str(path))
    return path


def test_a_mark_is_heard_once(channel: Path) -> None:
    """A mark arrives with its name, its process and its time; hearing again gives what is new."""
    with Listener(str(channel)) as listener:
        mark("epoch 1")
        (message,) = listener.hear()
        assert (message["kind"], message["name"], message["pid"]) == ("mark", "epoch 1", os.getpid())
        assert message["time_us"] > 1_000_000_000_000_000
        assert listener.hear() == []


def test_nobody_listens(monkeypatch: pytest.MonkeyPatch) -> None:
    """Outside `memlens run` a mark does nothing, also when the recorder has gone."""
    monkeypatch.delenv(VARIABLE, raising=False)
    assert say("mark", name="x") is False
    monkeypatch.setenv(VARIABLE, "/no/such/file")
    assert say("mark", name="x") is False


def test_half_a_line_waits_for_its_end(channel: Path) -> None:
    """A line that is still being written is heard when it is whole; nonsense is counted and skipped."""
    with Listener(str(channel)) as listener, channel.open("ab", buffering=0) as file:
        file.write(b'{"kind": "mark", "pid": 1,')
        assert listener.hear() == []
        file.write(b' "time_us": 2, "name": "x"}\nnonsense\n[]\n{"kind": "mark"}\n')
        assert [message["name"] for message in listener.hear()] == ["x"]
        assert listener.unreadable == 3
