"""TARGET: what is found, and the one line that says why something is not."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

pytest.importorskip("torch")

from torch import nn

from memlens.errors import MemlensError, TargetError, UsageError
from memlens.scenarios.target import find_target
from memlens.scenarios.userfile import objects_in

pytestmark = pytest.mark.torch

NET = """
from dataclasses import dataclass
import torch
from torch import nn

@dataclass
class Size:
    wide: int = 4

class Net(nn.Module):
    def __init__(self, wide=4):
        super().__init__()
        self.linear = nn.Linear(wide, wide)

def make_net(wide):
    if wide < 0:
        raise ValueError("wide must be positive")
    return Net(wide)

def make_number():
    return 3

ready = Net(8)
NUMBER = 3
"""


@pytest.fixture
def net(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> str:
    """A user's file in the current folder."""
    monkeypatch.chdir(tmp_path)
    (tmp_path / "net.py").write_text(NET)
    return "net.py"


def build(target: object, **arguments: object) -> nn.Module:
    return find_target(target, arguments).build().model


def test_a_class_a_factory_and_an_instance_of_a_file(net: str) -> None:
    """Each gives a model; arguments reach the class and the factory."""
    assert build("net.py:Net").linear.in_features == 4
    assert build("net.py:make_net", wide=6).linear.in_features == 6
    assert build("net.py:ready").linear.in_features == 8


def test_an_importable_module(net: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """`package.module:object` is imported from the current folder, whose place on the path is given back."""
    before = list(sys.path)
    assert build("net:Net").linear.in_features == 4
    assert sys.path == before
    sys.modules.pop("net")


def test_a_file_leaves_no_module_behind(net: str) -> None:
    """The file is run under its own name and is not importable afterwards."""
    build("net.py:Net")
    assert "net" not in sys.modules


def test_a_model_object_is_copied_not_built_on() -> None:
    """What is simulated is a copy."""
    model = nn.Linear(4, 4)
    assert build(model) is not model
    assert build(nn.Linear, in_features=4, out_features=2).out_features == 2


@pytest.mark.parametrize(
    ("target", "arguments", "says", "hint"),
    [
        ("nett.py:Net", {}, "there is no file nett.py", "did you mean net.py"),
        ("net.py:Nett", {}, "net.py has no object 'Nett'", "did you mean net.py:Net"),
        ("net.py", {}, "net.py is a script", "net.py:Net, net.py:Size, net.py:make_net"),
        ("net.py", {}, "a model is needed here", "`memlens predict net.py`"),
        ("gone.py", {}, "there is no file gone.py", ""),
        ("resnet50", {}, "cannot read the target 'resnet50'", "timm:resnet50"),
        ("net.py:", {}, "cannot read the target 'net.py:'", "net.py:make_model"),
        ("no_such_package.models:Net", {}, "there is no module 'no_such_package'", "net.py:make_model"),
        ("net.py:make_net", {}, "missing a required argument: 'wide'", "--model-arg wide=..."),
        ("net.py:make_net", {"wid": 3}, "net.py:make_net cannot be called", "--model-arg wide=..."),
        ("net.py:make_net", {"wide": -1}, r"ValueError: wide must be positive \(net.py:17 in make_net\)", ""),
        ("net.py:make_number", {}, "returned int, not a model", "nn.Module"),
        ("net.py:NUMBER", {}, "is of type int, not a model", "nn.Module"),
        ("net.py:ready", {"wide": 3}, "is a model already, so it takes no arguments: wide=3", ""),
        (3, {}, "cannot predict 3, of type int", "timm:resnet50"),
    ],
)
def test_what_names_nothing_is_one_clear_error(
    net: str, target: object, arguments: dict, says: str, hint: str
) -> None:
    """The call is repeated, and the hint says what is there."""
    with pytest.raises(MemlensError, match=says) as error:
        build(target, **arguments)
    assert hint in (error.value.hint or "")
    assert "\n" not in error.value.message


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("import no_such_library_at_all", "does not import: ModuleNotFoundError: No module named .*net.py:1"),
        ("x = 1\n1 / 0", r"does not import: ZeroDivisionError: division by zero \(net.py:2 in <module>\)"),
        ("def f(:\n", r"does not import: SyntaxError: .* \(net.py:1\)"),
        ("import sys\nsys.exit(3)", "does not import: SystemExit: 3"),
    ],
)
def test_a_file_that_does_not_import_says_its_line(net: str, text: str, says: str) -> None:
    """The user's own error with its place, never a traceback."""
    Path("net.py").write_text(text)
    with pytest.raises(TargetError, match=says):
        build("net.py:Net")


def test_objects_are_read_without_running_the_file(net: str) -> None:
    """Modules come first, then the other classes and functions."""
    assert objects_in(Path(net)) == ["Net", "Size", "make_net", "make_number"]


def test_a_zoo_that_is_not_installed_says_so(monkeypatch: pytest.MonkeyPatch) -> None:
    """`timm:` without timm names the library and how to get it."""
    monkeypatch.setitem(sys.modules, "timm", None)
    with pytest.raises(TargetError, match="timm:resnet50 needs timm, which is not installed") as error:
        build("timm:resnet50")
    assert error.value.hint == "pip install timm"


def test_hf_never_downloads(tmp_path: Path) -> None:
    """A config that is not on this machine is an error that says how to get it."""
    pytest.importorskip("transformers")
    with pytest.raises(TargetError, match="is not in the local cache, and memlens does not download"):
        build("hf:nobody/no-such-model")
    with pytest.raises(TargetError, match="there is no file or folder"):
        build(f"hf:{tmp_path}/config.json")
    with pytest.raises(TargetError, match=r"there is no config.json in"):
        build(f"hf:{tmp_path}")


def test_a_usage_error_is_no_target_error(net: str) -> None:
    """A script is a wrong call: exit code 2 says so."""
    with pytest.raises(UsageError):
        build("net.py")
