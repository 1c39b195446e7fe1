"""The pytest plugin, run by pytest on small test files in a process of their own."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from importlib.metadata import entry_points
from pathlib import Path

TESTS = """
import pytest

@pytest.mark.limit_memory("24 MB")
def test_small():
    bytearray(10 << 20)

@pytest.mark.limit_memory("24 MB")
def test_large():
    bytearray(40 << 20)

@pytest.mark.limit_memory("24 MB")
def test_fails_for_its_own_reason():
    assert False

@pytest.mark.limit_memory
def test_without_a_size():
    pass

def test_fixture(memory):
    with memory.measure() as used:
        kept = bytearray(40 << 20)
        bytearray(60 << 20)
    assert abs(used.net_bytes - (40 << 20)) < 1 << 20
    assert abs(used.peak_bytes - (100 << 20)) < 1 << 20
"""


def plugin() -> list[str]:
    """Names the plugin where no installed memlens announces it; pytest refuses to load one twice."""
    announced = {entry.name for entry in entry_points(group="pytest11")}
    return [] if "memlens" in announced else ["-p", "memlens.integrations.pytest_plugin"]


def test_a_limit_fails_the_test_that_needs_more(tmp_path: Path) -> None:
    """24 MB allow 10 MiB and not 40, by a temporary that is gone when the test ends; the fixture measures."""
    (tmp_path / "test_it.py").write_text(TESTS)
    command = [sys.executable, "-m", "pytest", *plugin(), "-rA", "-q"]
    command += ["--strict-markers", "-p", "no:cacheprovider", "--rootdir", str(tmp_path), str(tmp_path)]
    run = subprocess.run(command, capture_output=True, text=True, env=dict(os.environ), timeout=60)
    for name in ("test_small", "test_fixture"):
        assert re.search(f"PASSED .*test_it.py::{name}", run.stdout), run.stdout
    assert re.search(r"test_large needed (39\.[5-9]|40\.)\d* MiB at its peak", run.stdout)
    assert "22.89 MiB is its limit" in run.stdout
    assert re.search(r"FAILED .*::test_fails_for_its_own_reason", run.stdout)
    assert "limit_memory takes one size" in run.stdout
    assert "3 failed, 2 passed" in run.stdout


MORE_TESTS = """
import pytest

pytestmark = pytest.mark.limit_memory("24 MB")

class TestClass:
    def test_of_the_module(self):
        bytearray(40 << 20)

    @pytest.mark.limit_memory("1 GiB")
    def test_the_nearest_counts(self):
        bytearray(40 << 20)

@pytest.mark.skip
def test_skipped(): ...

@pytest.mark.limit_memory("a lot")
def test_no_size(): ...

@pytest.mark.limit_memory(24_000_000)
def test_a_number(): ...

@pytest.mark.parametrize("n", [1, 40])
def test_each(n):
    bytearray(n << 20)

@pytest.fixture
def large():
    kept = bytearray(60 << 20)
    yield kept

def test_what_fixtures_hold_is_not_charged(large):
    assert len(large)

def test_the_fixture_says_what_an_exception_leaves(memory):
    with pytest.raises(ValueError):
        with memory.measure() as used:
            bytearray(10 << 20)
            raise ValueError
    assert used.peak_bytes > 9 << 20
"""


def test_marks_of_modules_and_fixtures(tmp_path: Path) -> None:
    """A module's limit holds for each of its tests, the nearest mark wins, set-up is not charged."""
    (tmp_path / "test_it.py").write_text(MORE_TESTS)
    command = [sys.executable, "-m", "pytest", *plugin(), "-rA", "-q"]
    command += ["--strict-markers", "-p", "no:cacheprovider", "--rootdir", str(tmp_path), str(tmp_path)]
    run = subprocess.run(command, capture_output=True, text=True, env=dict(os.environ), timeout=60)
    failed = set(re.findall(r"^FAILED .*::(test_\w+(?:\[\d+\])?)", run.stdout, re.MULTILINE))
    assert failed == {"test_of_the_module", "test_no_size", "test_each[40]"}, run.stdout
    assert "cannot read 'a lot' as a size" in run.stdout or "'a lot'" in run.stdout
    assert "3 failed, 5 passed, 1 skipped" in run.stdout
