"""Old names and broken libraries: one line that says which, and what to do."""

from __future__ import annotations

import importlib.util
from pathlib import Path

import pytest

pytest.importorskip("torch")

from memlens.errors import TargetError
from memlens.scenarios.script.installed import broken
from memlens.scenarios.script.predict_script import Script, predict_script

pytestmark = pytest.mark.torch

OLD = {
    "from torch._six import string_classes": ("torch._six", "collections.abc"),
    "import numpy as np\nnp.float(1)": ("numpy.float", "float replaced it"),
    "import numpy as np\nnp.NaN": ("numpy.NaN", "numpy.nan"),
    "from numpy import product": ("numpy.product", "numpy.prod"),
    "from collections import Mapping": ("collections.Mapping", "collections.abc.Mapping"),
    "import torch\ntorch.rfft": ("torch.rfft", "torch.fft.rfft"),
    "import torch\ntorch.was_here_once": ("torch.was_here_once", "another version of torch has it"),
    "import cv9": ("cv9, which is not installed", "pip install cv9"),
    "from apex.optimizers import FusedAdam": ("apex, which is not installed", "torch.optim"),
}


def error_of(code: str) -> Exception:
    try:
        exec(compile(code, "train.py", "exec"), {})
    except Exception as error:
        return error
    raise AssertionError(f"{code!r} works here")


@pytest.mark.parametrize("code", OLD)
def test_an_old_name(code: str) -> None:
    """The line has the name, and where; the hint has what replaced it."""
    pytest.importorskip("numpy")
    name, hint = OLD[code]
    told = broken(error_of(code), "train.py", {})
    assert told is not None
    assert f"{name}" in told.message
    assert f"(train.py:{len(code.splitlines())} in <module>)" in told.message
    assert hint in told.hint


def test_other_errors_are_the_scripts_own(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A name that its own module does not have, and a wrong value."""
    (tmp_path / "numpy_helpers.py").write_text("")
    monkeypatch.syspath_prepend(str(tmp_path))
    for code in (
        "import numpy_helpers\nnumpy_helpers.float",
        "{}['float']",
        "from numpy_helpers import bool8",
        "import numpy_helpers.more",
    ):
        assert broken(error_of(code), "train.py", {}) is None


LIBRARIES = {
    "torchvision": "raise RuntimeError('operator torchvision::nms does not exist')",
    "flash_attn": "raise ImportError('flash_attn_2.so: undefined symbol: _ZN2at4_ops')",
    "leaning": "try:\n    import torchvision\nexcept RuntimeError as error:\n"
    "    raise ImportError('see above') from error",
    "outdated": "import numpy\nnumpy.float",
}
FAILS = "which cannot be imported here: "
LINES = {
    "torchvision": (f"needs torchvision 0.1, {FAILS}RuntimeError: operator", "made for torch 2"),
    "flash_attn": (f"needs flash_attn, {FAILS}ImportError: flash_attn_2", "--upgrade flash_attn"),
    "leaning": (f"needs torchvision 0.1, {FAILS}RuntimeError", "--upgrade torchvision"),
    "outdated": ("outdated uses numpy.float, which the installed numpy", "float replaced it"),
}


@pytest.mark.parametrize("library", LIBRARIES)
def test_a_library_that_cannot_be_imported(
    library: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Whose fault it is is found behind the library that the script asked for."""
    pytest.importorskip("numpy")
    if library in ("torchvision", "leaning") and importlib.util.find_spec("torchvision"):
        pytest.skip("a torchvision that works is installed, and comes first")
    site = tmp_path / "site-packages"
    for name, text in LIBRARIES.items():
        (site / name).mkdir(parents=True)
        (site / name / "__init__.py").write_text(text)
    (site / "torchvision-0.1.dist-info").mkdir()
    (site / "torchvision-0.1.dist-info" / "METADATA").write_text("Name: torchvision\nVersion: 0.1\n")
    (site / "torchvision-0.1.dist-info" / "top_level.txt").write_text("torchvision\n")
    monkeypatch.setenv("PYTHONPATH", str(site))
    script = tmp_path / "train.py"
    script.write_text(f"import torch\nimport {library}\n")
    line, hint = LINES[library]
    with pytest.raises(TargetError) as caught:
        predict_script(Script(str(script)), gpu="T4")
    assert line in caught.value.message
    assert "train.py:2 in <module>" in caught.value.message
    assert "\n" not in caught.value.message
    assert hint in (caught.value.hint or "")
