"""What the model is fed, as text, shapes and tensors, and what is said when it cannot be known."""

from __future__ import annotations

import pytest

pytest.importorskip("torch")

import torch
from torch import nn

from memlens.errors import UsageError
from memlens.scenarios.inputs import InputSpec, guess_inputs, make_inputs, parse_input, read_inputs

pytestmark = pytest.mark.torch


@pytest.mark.parametrize(
    ("text", "spec"),
    [
        ("3x224x224", InputSpec((3, 224, 224))),
        ("3,224,224", InputSpec((3, 224, 224))),
        ("int64:1024", InputSpec((1024,), torch.int64)),
        ("input_ids=int64:1024", InputSpec((1024,), torch.int64, "input_ids")),
        ("x=bf16:8x8", InputSpec((8, 8), torch.bfloat16, "x")),
        ("labels=int64:", InputSpec((), torch.int64, "labels")),
    ],
)
def test_an_input_is_read_as_people_type_it(text: str, spec: InputSpec) -> None:
    """Name, dtype and the shape of one sample, each optional but the shape."""
    assert parse_input(text) == spec


@pytest.mark.parametrize("text", ["", "3x-1x4", "0x3", "abc", "a=b=c", "3x224x"])
def test_an_unreadable_input_says_how_to_write_one(text: str) -> None:
    """The error repeats what was typed and shows three that work."""
    with pytest.raises(UsageError, match="cannot read --input") as error:
        parse_input(text)
    assert "3x224x224" in (error.value.hint or "")


def test_an_unknown_dtype_gets_the_nearest() -> None:
    """`flot32` is `float32`."""
    with pytest.raises(UsageError, match="unknown dtype 'flot32'") as error:
        parse_input("flot32:3")
    assert "float32" in (error.value.hint or "")


def test_shapes_tensors_and_dicts_are_inputs_too() -> None:
    """From Python the batch is added to a shape and is part of a tensor."""
    assert read_inputs((3, 8, 8))[0].full_shape(4) == (4, 3, 8, 8)
    assert read_inputs(torch.zeros(4, 3))[0].full_shape(9) == (4, 3)
    assert read_inputs({"ids": "int64:16"}) == (InputSpec((16,), torch.int64, "ids"),)
    assert read_inputs([(3,), (4,)]) == (InputSpec((3,)), InputSpec((4,)))
    with pytest.raises(UsageError, match=r"cannot read 1\.5 as an input"):
        read_inputs(1.5)


def test_inputs_are_made_by_position_and_by_name() -> None:
    """Floating inputs take the dtype of the weights unless they say their own."""
    specs = read_inputs(["3x4", "mask=bool:4"])
    args, kwargs = make_inputs(specs, 2, torch.bfloat16, torch.device("cpu"))
    assert (args[0].shape, args[0].dtype) == ((2, 3, 4), torch.bfloat16)
    assert (kwargs["mask"].shape, kwargs["mask"].dtype) == ((2, 4), torch.bool)


def test_only_a_certain_guess_is_made() -> None:
    """A Sequential that starts with Linear takes its features; a convolution's image size is unknown."""
    assert guess_inputs(nn.Sequential(nn.Linear(20, 4), nn.ReLU()), "mlp") == (InputSpec((20,)),)
    with pytest.raises(UsageError, match="what goes into net is not known") as error:
        guess_inputs(nn.Sequential(nn.Conv2d(3, 8, 3)), "net")
    assert "--input 3x224x224" in (error.value.hint or "")


def test_a_lightning_example_is_an_input() -> None:
    """`example_input_array` has a batch dimension of its own, which is replaced."""
    model = nn.Conv2d(3, 8, 3)
    model.example_input_array = torch.zeros(7, 3, 32, 32)
    assert guess_inputs(model, "net") == (InputSpec((3, 32, 32), torch.float32),)


def test_a_length_makes_token_numbers() -> None:
    """`--seq-len` is the input of a model that embeds tokens, and an error for one that does not."""
    assert guess_inputs(nn.Sequential(nn.Embedding(9, 4)), "lm", 128) == (InputSpec((128,), torch.int64),)
    with pytest.raises(UsageError, match="embeds no tokens"):
        guess_inputs(nn.Linear(3, 3), "mlp", 128)
