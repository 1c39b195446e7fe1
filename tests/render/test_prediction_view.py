"""A prediction in the terminal, at the widths people have, from a trace made by hand."""

from __future__ import annotations

from dataclasses import replace

import pytest

from memlens.explanation.prediction import Card, Prediction, build_prediction
from memlens.explanation.step_growth import StepGrowth
from memlens.model import Alloc, Assumption, Category, Device, Free, Mark, SegmentAlloc, Site, Trace
from memlens.render.consoles import as_text
from memlens.render.prediction import (
    PredictionView,
    format_range,
    join_names,
    share_columns,
    short_path,
    subtitle,
)
from memlens.units import GIB, MIB

LAYER = Site("net.py", 12, "forward", "encoder.layers.0.attention", "MultiheadAttention", "addmm")


def prediction() -> Prediction:
    """One step of 60 MiB on a card of 1 GiB."""
    events = [
        SegmentAlloc(0, 80 * MIB), Alloc(1, 20 * MIB, Category.PARAMETER),
        Alloc(2, 40 * MIB, Category.ACTIVATION, LAYER), Free(2), Alloc(3, 20 * MIB, Category.GRADIENT, LAYER),
    ]  # fmt: skip
    marks = [Mark("build", 0), Mark("forward", 2, 1), Mark("backward", 3, 1)]
    device = Device("NVIDIA GeForce RTX 4090", GIB, (8, 9), (10 * MIB, 20 * MIB, 50 * MIB))
    scenario = {
        "mode": "train", "batch_size": 4, "inputs": ["3x8x8"], "precision": "fp32", "optimizer": "adam",
        "optimizer_arguments": {"lr": 0.1}, "loss": "sum", "accumulate": 2, "grad_checkpointing": True,
        "steps": 1, "alloc_conf": None,
    }  # fmt: skip
    trace = Trace("predicted", events, device, marks, assumptions=[Assumption("a guess", "a reason")])
    return build_prediction(
        trace, target="net.py:Net", scenario=scenario, operators=1, elapsed_seconds=0.1,
        versions=("0", "0"), asked_for_a_card=True,
    )  # fmt: skip


EIGHTY = """\
Fits the RTX 4090: needs 100.00 MiB of 1.00 GiB, 924.00 MiB to spare
net.py:Net, training, batch 4 of 3x8x8, fp32, adam lr=0.1, 2 batches a step,
gradient checkpointing

Memory at the peak
  activations        40.00 MiB  40%  ██████████████
  parameters         20.00 MiB  20%  ███████
  reserved, unused   20.00 MiB  20%  ███████
  CUDA context       20.00 MiB  20%  ███████
  process           100.00 MiB       between 90.00 MiB and 130.00 MiB

Where the peak is
  phase     forward, step 1 of 1
  module    encoder.layers.0.attention
  operator  addmm
  line      net.py:12

What holds most at the peak
  encoder.layers.0.attention  MultiheadAttention  40.00 MiB  ███████████████

Allocated over step 1
  60.0 MiB ┤█████████████████████████
           ┤█████████████████████████
           ┤█████████████████████████                     █████████████████████
           ┤█████████████████████████                     █████████████████████
           ┤███████████████████████████████████████████████████████████████████
       0 B ┤███████████████████████████████████████████████████████████████████
            └forward                 └backward

What is assumed, and how far it may move the peak
  the CUDA context takes 20.00 MiB: it depends on the driver     -10 MiB +30 MiB
  and on the kernels that are loaded
  a guess: a reason
"""


def test_the_whole_page_at_80_columns() -> None:
    """Every figure of the page follows from five events."""
    page = "\n".join(line.rstrip() for line in as_text(PredictionView(prediction()), 80).splitlines()) + "\n"
    assert page == EIGHTY


@pytest.mark.parametrize("width", [60, 80, 120, 200])
def test_no_line_is_longer_than_the_terminal(width: int) -> None:
    """From a narrow pane to a wide screen."""
    assert max(len(line) for line in as_text(PredictionView(prediction()), width).splitlines()) <= width


@pytest.mark.parametrize("columns", [20, 67, 187])
def test_many_phases_share_the_chart(columns: int) -> None:
    """However many phases a step has, their columns add up to the chart's."""
    phases = [
        (name, 10 * n, 10 * n + 10) for n, name in enumerate(["forward", "backward", "after backward"] * 7)
    ]
    spans = share_columns(phases, columns)
    assert sum(spans) == max(columns, len(phases))
    assert min(spans) >= 1


def test_growth_is_in_the_verdict() -> None:
    """The card has room for a number of steps more; the holder is named."""
    grown = replace(
        prediction(), growth=StepGrowth(2 * MIB, "train.py:7", 11), notes=("no backward follows",)
    )
    page = as_text(PredictionView(grown), 80)
    assert "\nGrows by 2.00 MiB a step (train.py:7): out of memory after 11 more steps\n" in page
    assert "Worth knowing\n  no backward follows" in page
    assert grown.headline().endswith(
        "; grows by 2.00 MiB a step (train.py:7): out of memory after 11 more steps"
    )


def test_the_line_below_the_answer_names_all_that_was_said() -> None:
    """A printed page tells generation from one forward pass, and a run with another allocator setting."""
    said = prediction()
    said.scenario.update(mode="inference", new_tokens=5, cache="static", alloc_conf="max_split_size_mb:64")
    assert subtitle(said).plain.endswith(
        "fp32, 5 new tokens (static cache), 2 batches a step, gradient checkpointing, max_split_size_mb:64"
    )


def test_cards_are_grouped_by_memory_and_answer() -> None:
    """One line a size; what does not fit on one line is counted."""
    cards = tuple(Card(f"NVIDIA RTX A{n}000", 8 * GIB, 6 * GIB, 7 * GIB) for n in range(20))
    cards += (Card("T4", 15 * GIB, 14 * GIB, 16 * GIB), Card("GTX 1650", 4 * GIB, 6 * GIB, 7 * GIB))
    page = as_text(PredictionView(replace(prediction(), fits=None, cards=cards)), 80)
    assert "   8 GiB  fits          RTX A0000, RTX A1000" in page
    assert " more" in page
    assert "  15 GiB  may not fit   T4" in page
    assert "   4 GiB  does not fit  GTX 1650" in page
    assert page.startswith("Needs 100.00 MiB; fits 20 of the 22 cards known, may not fit 1\n")


def test_names_that_do_not_fit_are_counted() -> None:
    """Nothing is cut in the middle of a name."""
    assert join_names(["T4", "A10", "RTX 6000"], 15) == "T4, A10, 1 more"
    assert join_names(["T4", "A10", "RTX 6000"], 14) == "T4, 2 more"
    assert join_names(["GeForce", "Quadro"], 5) == "2 cards"


def test_a_guess_without_a_number_claims_none() -> None:
    """Signs say the direction."""
    assert format_range(Assumption("x", "y")) == ""
    assert format_range(Assumption("x", "y", 0, 5 * MIB)) == "+5 MiB"
    assert format_range(Assumption("x", "y", -MIB, 5 * MIB)) == "-1 MiB +5 MiB"
    assert format_range(Assumption("x", "y", 0, 1350 * MIB)) == "+1.32 GiB"  # not +1 GiB: that is too little


def test_a_path_elsewhere_is_shortened_to_its_end() -> None:
    """A library's line keeps the part that says which library."""
    assert short_path("net.py:12") == "net.py:12"
    assert (
        short_path("/usr/lib/python/site-packages/timm/models/resnet.py:9") == ".../timm/models/resnet.py:9"
    )
    assert short_path("") == ""
