"""`memlens.summary()`: the calls of torchinfo's and torchsummary's users, and what comes back."""

from __future__ import annotations

import html.parser
import json

import pytest

pytest.importorskip("torch")

import torch
from tests.support import nets
from torch import nn

import memlens
from memlens.errors import MemlensError
from memlens.summaries.sizes import shape_spec

pytestmark = pytest.mark.torch


@pytest.mark.parametrize(
    ("size", "options", "shape"),
    [
        ((1, 3, 32, 32), {}, (1, 3, 32, 32)),  # torchinfo: with the batch
        ((3, 32, 32), {}, (1, 3, 32, 32)),  # torchsummary: without
        ((3, 32, 32), {"batch_size": 4}, (4, 3, 32, 32)),
        ((3, 32, 32), {"batch_dim": 0}, (1, 3, 32, 32)),
        ((3, 32, 32), {"batch_dim": 0, "batch_size": 2}, (2, 3, 32, 32)),
        ([(3, 32, 32)], {}, (1, 3, 32, 32)),
        ("3x32x32", {"batch_size": 2}, (2, 3, 32, 32)),
    ],
)
def test_sizes_as_both_tools_users_type_them(size: object, options: dict, shape: tuple[int, ...]) -> None:
    """With the batch or without it: the first convolution decides where nothing else does."""
    found = memlens.summary(nets.Functional(), size, verbose=0, **options)
    assert found.rows[0].output_shapes == ((shape[0], 64, 2, 2),)
    assert found.totals.input_bytes == 4 * shape[0] * 3 * 32 * 32


def test_sizes_where_no_convolution_decides() -> None:
    """Two dimensions have a batch, one has none."""
    assert shape_spec(nn.Linear(8, 8), (16, 8), None, None, None).batched
    assert not shape_spec(nn.Linear(8, 8), (8,), None, None, None).batched


def test_torchsummarys_call() -> None:
    """`summary(model, (3, 224, 224), batch_size=, device=)` needs no change."""
    found = memlens.summary(nets.Flat(), (3, 16, 16), batch_size=2, device="cuda", verbose=0)
    assert found.rows[0].output_shapes == ((2, 64, 16, 16),)


def test_several_inputs_and_dtypes() -> None:
    """A list of sizes with a dtype each, and further arguments of forward by name."""

    class Net(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.embed = nn.Embedding(10, 8)

        def forward(self, ids: torch.Tensor, x: torch.Tensor, scale: float = 1.0) -> torch.Tensor:
            return self.embed(ids) + x * scale

    found = memlens.summary(
        Net(), [(2, 4), (2, 4, 8)], dtypes=[torch.int64, torch.float32], verbose=0, scale=2.0
    )
    assert found.inputs == ("int64:2x4", "float32:2x4x8")
    assert found.totals.input_bytes == 2 * 4 * 8 + 2 * 4 * 8 * 4


@pytest.mark.parametrize("data", [torch.ones(2, 8), [torch.ones(2, 8)], {"input": torch.ones(2, 8)}])
def test_input_data(data: object) -> None:
    """A tensor, a list of arguments, or a dictionary of them."""
    assert memlens.summary(nn.Linear(8, 4), input_data=data, verbose=0).rows[0].output_shapes == ((2, 4),)


def test_the_object_prints_itself(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """In a script the table is printed once; the object is the table, its formulas on demand."""
    monkeypatch.setenv("COLUMNS", "100")
    found = memlens.summary(nn.Sequential(nn.Linear(8, 8), nn.ReLU()), (2, 8))
    printed = capsys.readouterr().out
    assert printed == str(found) + "\n"
    assert "├─Linear (0): 1-1" in printed
    memlens.summary(nn.Linear(8, 8), (2, 8), verbose=2)
    assert "in × out + out = 8 × 8 + 8 = 72" in capsys.readouterr().out
    memlens.summary(nn.Linear(8, 8), (2, 8), verbose=0)
    assert capsys.readouterr().out == ""


def test_columns_rows_and_depth_by_torchinfos_words() -> None:
    """`col_names`, `row_settings` and `depth` mean what they mean there."""
    found = memlens.summary(
        nets.Nested(), (1, 3, 8, 8), verbose=0, depth=1,
        col_names=("input_size", "output_size", "num_params", "params_percent", "kernel_size", "mult_adds"),
        row_settings=["ascii_only", "depth"],
    )  # fmt: skip
    lines = str(found).splitlines()
    titles = ("Input Shape", "Output Shape", "Param #", "Param %", "Kernel Shape", "Mult-Adds")
    assert all(title in lines[1] for title in titles)
    assert lines[4].startswith("+ Pair: 1-1")
    assert "38,720" in lines[4]
    assert "34.39%" in lines[4]


def test_recursive_layers() -> None:
    """torchinfo's word for a layer that came before; they can be hidden."""
    model = nn.Sequential(layer := nn.Linear(8, 8), nn.ReLU(), layer)
    assert "(recursive)" in str(memlens.summary(model, (2, 8), verbose=0))
    hidden = str(memlens.summary(model, (2, 8), verbose=0, row_settings=["hide_recursive_layers"]))
    assert "(recursive)" not in hidden


class _Tags(html.parser.HTMLParser):
    def __init__(self) -> None:
        super().__init__()
        self.open: list[str] = []
        self.text = ""

    def handle_starttag(self, tag: str, attrs: object) -> None:
        if tag != "br":
            self.open.append(tag)

    def handle_endtag(self, tag: str) -> None:
        assert self.open.pop() == tag

    def handle_data(self, data: str) -> None:
        self.text += data


def test_notebooks_show_a_table() -> None:
    """Well-formed, self-contained, and a class with a bracket in its name cannot break it."""
    kind = type("A<script>B", (nn.Linear,), {})
    page = memlens.summary(nn.Sequential(kind(8, 8)), (2, 8), verbose=0)._repr_html_()
    parser = _Tags()
    parser.feed(page)
    assert parser.open == []
    assert "A<script>B" in parser.text
    assert "<script" not in page


def test_without_an_input_layers_and_parameters_are_shown() -> None:
    """As torchinfo does: nothing runs, no layer is called unused, and what to pass is said."""
    model = nn.Sequential(nn.Conv2d(1, 4, 3), nn.ReLU())
    found = memlens.summary(model, verbose=0)
    assert (found.totals.params, found.totals.macs, len(found.rows)) == (40, 0, 3)
    assert "[unused]" not in str(found)
    assert "pass their size, --input 1x224x224" in " ".join(str(found).split())
    with pytest.raises(MemlensError, match="what goes into Sequential is not known"):
        memlens.summary(model, verbose=0, like="torchinfo")


def test_dtypes_as_torchsummary_writes_them() -> None:
    """`torch.LongTensor` is what its signature has in place of `torch.int64`."""
    found = memlens.summary(nn.Embedding(9, 3), [(1, 5)], dtypes=[torch.LongTensor], verbose=0)
    assert found.inputs == ("int64:1x5",)


def test_json_and_csv() -> None:
    """The same data as the command's."""
    found = memlens.summary(nn.Linear(8, 8), (2, 8), verbose=0)
    assert json.loads(json.dumps(found.to_dict()))["schema"] == "memlens.summary/1"
    assert len(found.to_csv().splitlines()) == 2


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"input_size": (2, 8), "input_data": torch.ones(2, 8)}, "input_size and input_data both"),
        ({"input_size": (2, 8), "row_settings": ["colour"]}, "there is no row setting 'colour'"),
        ({"input_size": (2, 8), "col_names": ["memory"]}, "there is no column 'memory'"),
        ({"input_size": [(2, 8)], "dtypes": [torch.float32] * 2}, "1 input sizes were given and 2 dtypes"),
        ({"input_size": (2, 8), "nonsense": 1}, "unexpected keyword argument 'nonsense'"),
        ({"input_size": (2, 9)}, "Linear"),
    ],
)
def test_what_is_wrong_is_said(options: dict, message: str) -> None:
    """Contradictions, unknown words and shapes that do not fit are one clear error."""
    with pytest.raises(MemlensError, match=message):
        memlens.summary(nn.Linear(8, 8), verbose=0, **options)
