"""Whose line it is: one rule for lines of running code, tracebacks and recordings."""

from __future__ import annotations

import json

import pytest

import memlens
from memlens.model.user_code import Whose, is_user_file, whose

PATHS = {
    "train.py": Whose.USER,
    "/home/me/torch_projects/train.py": Whose.USER,
    "C:\\work\\net.py": Whose.USER,
    "/tmp/ipykernel_1/2.py": Whose.USER,
    "<ipython-input-3-0a1b>": Whose.USER,
    "<stdin>": Whose.USER,
    "/opt/venv/lib/python3.12/site-packages/timm/models/vit.py": Whose.LIBRARY,
    "/usr/lib/python3/dist-packages/yaml/__init__.py": Whose.LIBRARY,
    "/opt/venv/lib/python3.12/site-packages/torchvision/ops/misc.py": Whose.LIBRARY,
    "/opt/venv/lib/python3.12/site-packages/torch/nn/modules/linear.py": Whose.TORCH,
    "C:\\env\\Lib\\site-packages\\torch\\optim\\adam.py": Whose.TORCH,
    "torch/_ops.py": Whose.TORCH,
    "/build/pytorch/torch/nn/functional.py": Whose.TORCH,
    "/usr/lib/python3.11/contextlib.py": Whose.PYTHON,
    "<frozen runpy>": Whose.PYTHON,
    "<string>": Whose.PYTHON,
    json.__file__: Whose.PYTHON,
    memlens.__file__: Whose.MEMLENS,
}


@pytest.mark.parametrize("path", PATHS)
def test_who_wrote_a_file(path: str) -> None:
    """By its path alone, since recordings come from other machines."""
    assert whose(path) is PATHS[path]
    assert is_user_file(path) == (PATHS[path] is Whose.USER)
