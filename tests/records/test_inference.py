"""What an allocation is for, from its stack and its life."""

from __future__ import annotations

import pytest

from memlens.model import Alloc, Category, Event, Frame, Free, Site
from memlens.records.inference import infer_categories
from memlens.records.stacks import site_of

ENGINE = Frame("??", 0, "torch::autograd::Engine::thread_main(std::shared_ptr<GraphTask> const&)")
NODE = Frame("??", 0, "torch::autograd::generated::MulBackward0::apply(std::vector<at::Tensor>&&)")
EMPTY = Frame("??", 0, "at::_ops::empty_strided::call(c10::ArrayRef<long>)")
FORWARD = site_of((Frame("net.py", 7, "forward"), Frame("train.py", 3, "<module>")))
BACKWARD = site_of((EMPTY, NODE, ENGINE))
OUTSIDE = site_of((Frame("train.py", 9, "step"),))


def categories(events: list[Event]) -> list[str]:
    infer_categories(events)
    return [event.category.value for event in events if isinstance(event, Alloc)]


def test_lives_tell_activations_from_temporaries() -> None:
    """Of two tensors of the forward pass, the one alive when backward begins is an activation."""
    events = [
        Alloc(1, 512, site=FORWARD),
        Alloc(2, 512, site=FORWARD),
        Free(2),
        Alloc(3, 512, site=BACKWARD),
        Free(3),
    ]
    assert categories([*events, Free(1)]) == ["activations", "temporaries", "temporaries"]


def test_what_backward_leaves_behind_is_a_gradient() -> None:
    """Alive at the next allocation outside, or at the end of the recording."""
    assert categories([Alloc(1, 512, site=BACKWARD), Alloc(2, 512, site=OUTSIDE), Free(1)]) == [
        "gradients",
        "unknown",
    ]
    assert categories([Alloc(1, 512, site=BACKWARD)]) == ["gradients"]


def test_without_a_backward_pass_nothing_is_an_activation() -> None:
    """What inference keeps stays unknown."""
    assert categories([Alloc(1, 512, site=FORWARD)]) == ["unknown"]


@pytest.mark.parametrize(
    ("file", "function", "category"),
    [
        ("/x/site-packages/torch/optim/adamw.py", "_init_group", Category.OPTIMIZER_STATE),
        ("/x/site-packages/torch/optim/adam.py", "_multi_tensor_adam", Category.TEMPORARY),
        ("/x/site-packages/torch/nn/modules/module.py", "_apply", Category.PARAMETER),
        ("C:\\lib\\site-packages\\torch\\nn\\modules\\linear.py", "__init__", Category.PARAMETER),
        ("??", "at::cuda::getCurrentCUDABlasHandle()", Category.WORKSPACE),
        ("train.py", "step", Category.UNKNOWN),
    ],
)
def test_stacks_that_name_what_they_make(file: str, function: str, category: Category) -> None:
    """Optimizers, modules and libraries are recognized by their own frames."""
    site = site_of((Frame(file, 5, function), Frame("train.py", 3, "<module>")))
    assert categories([Alloc(1, 512, site=site)]) == [category.value]


def test_a_known_category_is_kept() -> None:
    """What a file says itself is not inferred again."""
    assert categories([Alloc(1, 512, Category.INPUT, BACKWARD)]) == ["inputs"]


def test_the_operator_is_not_the_factory_of_its_result() -> None:
    """empty_strided says nothing; the autograd node above it does."""
    assert BACKWARD.operator == "MulBackward0"
    assert site_of((EMPTY,)).operator == "empty_strided"


@pytest.mark.parametrize(
    ("files", "where"),
    [
        (["/usr/lib/python3.11/runpy.py", "/home/me/net.py"], "/home/me/net.py:1"),
        (["/x/site-packages/torch/_ops.py"], "/x/site-packages/torch/_ops.py:1"),
        (["<ipython-input-3-abc>"], "<ipython-input-3-abc>:1"),
        (["<frozen importlib._bootstrap>", "train.py"], "train.py:1"),
        (["ceval.c", "??"], ""),
    ],
)
def test_the_users_own_line_comes_first(files: list[str], where: str) -> None:
    """Packages, the standard library and C are skipped; a library's line only where there is no other."""
    site = site_of(tuple(Frame(file, 1, "f") for file in files))
    assert site.where == where
    assert isinstance(site, Site)
