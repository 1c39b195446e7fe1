"""Values, names and optimizers as people type them."""

from __future__ import annotations

import pytest

pytest.importorskip("torch")

import torch

from memlens.errors import UsageError
from memlens.scenarios.constructor_names import parse_arguments, parse_value
from memlens.scenarios.optimizers import NAMES, find_optimizer
from memlens.scenarios.scenario import make_scenario

pytestmark = pytest.mark.torch


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("0.9", 0.9),
        ("1e-3", 1e-3),
        ("(0.9, 0.95)", (0.9, 0.95)),
        ("True", True),
        ("false", False),
        ("gelu", "gelu"),
    ],
)
def test_a_value_is_a_literal_where_it_can_be(text: str, value: object) -> None:
    """Numbers, tuples and truth are Python's, everything else is text."""
    assert parse_value(text) == value


def test_arguments_may_share_one_option() -> None:
    """`lr=.1 momentum=0.9` are two, `betas=(0.9, 0.95)` is one."""
    assert parse_arguments(["lr=.1 momentum=0.9", "betas=(0.9, 0.95)"], "--optimizer-arg") == {
        "lr": 0.1,
        "momentum": 0.9,
        "betas": (0.9, 0.95),
    }
    with pytest.raises(UsageError, match="'width' is not NAME=VALUE"):
        parse_arguments(["width"], "--model-arg")


def test_all_of_torch_optim_is_known() -> None:
    """Every optimizer class of torch has its lower-case name."""
    assert {"sgd", "adam", "adamw", "adamax", "nadam", "radam", "adagrad", "adadelta"} <= set(NAMES)
    assert {"rmsprop", "rprop", "asgd", "lbfgs", "adafactor", "sparseadam"} <= set(NAMES)


def test_an_optimizer_is_made_with_its_arguments() -> None:
    """The name, the class and a function are the same door."""
    weight = torch.nn.Parameter(torch.zeros(3))
    for given in ("sgd", "SGD", torch.optim.SGD):
        name, make = find_optimizer(given, {"momentum": 0.9})
        assert name == "sgd"
        assert make is not None
        assert make([weight]).defaults["momentum"] == 0.9
    assert find_optimizer("none", {}) == ("none", None)


def test_wrong_names_get_the_nearest() -> None:
    """Optimizer, argument, precision and mode."""
    with pytest.raises(UsageError, match="unknown optimizer 'adanw'") as error:
        find_optimizer("adanw", {})
    assert "adamw" in (error.value.hint or "")
    with pytest.raises(UsageError, match="unknown argument of SGD 'momentun'") as error:
        find_optimizer("sgd", {"momentun": 0.9})
    assert "did you mean momentum" in (error.value.hint or "")
    with pytest.raises(UsageError, match="unknown precision 'bf32'"):
        make_scenario(precision="bf32")
    with pytest.raises(UsageError, match="unknown mode 'trian'"):
        make_scenario(mode="trian")


def test_a_value_the_optimizer_refuses_is_one_line() -> None:
    """torch's own reason, with the call."""
    _, make = find_optimizer("adam", {"lr": -1.0})
    assert make is not None
    with pytest.raises(UsageError, match=r"Adam\(lr=-1.0\) refused: Invalid learning rate"):
        make([torch.nn.Parameter(torch.zeros(3))])


def test_an_optimizer_that_runs_the_model_is_refused() -> None:
    """LBFGS needs a closure, which the assumed loop does not have."""
    with pytest.raises(UsageError, match="lbfgs runs the model itself"):
        find_optimizer("lbfgs", {})


@pytest.mark.parametrize("values", [{"batch_size": 0}, {"batch_size": -4}, {"steps": 0}, {"accumulate": 1.5}])
def test_counts_are_at_least_one(values: dict) -> None:
    """A batch of nothing is refused with the number that was given."""
    with pytest.raises(UsageError, match="must be a whole number of at least 1"):
        make_scenario(**values)


def test_training_options_have_no_meaning_in_inference() -> None:
    """An option without effect is an error."""
    with pytest.raises(UsageError, match="accumulate and grad-checkpointing has no meaning"):
        make_scenario(mode="inference", accumulate=4, grad_checkpointing=True)
    assert make_scenario(mode="inference").optimizer == "none"


@pytest.mark.parametrize(
    ("word", "precision"),
    [("float16", "fp16"), ("BFloat16", "bf16"), ("16-mixed", "amp-fp16"), ("bf16-mixed", "amp-bf16")],
)
def test_precisions_in_other_words(word: str, precision: str) -> None:
    """As torch, Lightning and Trainer name them."""
    assert make_scenario(precision=word).precision == precision
    assert make_scenario(mode="eval").mode == "inference"
