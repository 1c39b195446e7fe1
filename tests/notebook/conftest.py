"""A shell as notebooks have one, with memlens loaded; nothing of it stays."""

from __future__ import annotations

import builtins
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest


@pytest.fixture
def shell(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Any]:
    from IPython.core.interactiveshell import InteractiveShell

    monkeypatch.setenv("IPYTHONDIR", str(tmp_path))
    for prompt in ("ps1", "ps2", "ps3"):  # set by the shell, for good
        monkeypatch.setattr(sys, prompt, "", raising=False)
    monkeypatch.delattr(builtins, "_", raising=False)  # doctests leave one: the shell then sets none
    InteractiveShell.clear_instance()
    shell = InteractiveShell.instance()
    shell.run_line_magic("load_ext", "memlens")
    yield shell
    shell.history_manager.end_session()
    InteractiveShell.clear_instance()
