"""What to type next, after an answer that is no."""

from __future__ import annotations

import shlex

import click
import pytest
from tests.support.predictions import prediction

from memlens.cli.commands.predict import command
from memlens.cli.next_step import after_prediction
from memlens.explanation.prediction import Prediction
from memlens.units import MIB


def said(line: str, answer: Prediction) -> str:
    """The line after this answer to this call."""
    with command.make_context("predict", shlex.split(line)) as ctx:
        return after_prediction(ctx, answer)


@pytest.mark.parametrize(
    ("line", "words"),
    [
        ("net.py:Net --gpu T4 --batch-size 8 --json", "--gpu T4 --batch-size 8 net.py:Net"),
        ("net.py:Net --input 3x8x8 --input m=2 --gpu T4", "--gpu T4 --input 3x8x8 --input m=2 net.py:Net"),
        ("net.py:Net --gpu T4 --grad-checkpointing", "--gpu T4 --grad-checkpointing net.py:Net"),
        ("train.py --gpu T4 --synthetic -- --lr 0.1", "--gpu T4 --synthetic train.py -- --lr 0.1"),
        ("train.py --gpu T4", "--gpu T4 train.py"),
    ],
)
def test_advice_is_asked_with_the_same_words(line: str, words: str) -> None:
    """What says where the answer goes is left out; the program's own arguments stay behind `--`."""
    text = said(line, prediction(41 * MIB))
    assert f"\nNext: memlens advise {words}\n" in text
    assert "--largest-batch" in text


def test_nothing_follows_a_yes() -> None:
    """What fits needs no advice, and neither does a call without a card."""
    assert said("net.py:Net --gpu T4", prediction(64 * MIB)) == ""
    assert said("net.py:Net", prediction(64 * MIB, asked=False)) == ""


def test_the_line_is_one_that_advise_takes() -> None:
    """Every option in it is one of that command's."""
    from memlens.cli.commands import advise

    text = said("net.py:Net --gpu T4 --precision bf16 --optimizer sgd --seq-len 8", prediction(41 * MIB))
    words = shlex.split(text.splitlines()[1].partition("memlens advise ")[2])
    context = advise.command.make_context("advise", words)
    assert isinstance(context, click.Context)
    assert (context.params["precision"], context.params["seq_len"]) == ("bf16", 8)
