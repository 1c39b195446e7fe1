"""Sparse tensors on the card: their indices and values are counted, and what is made of them."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import pytest

torch = pytest.importorskip("torch")

from tests.support.asked import asked  # noqa: E402

import memlens  # noqa: E402
from memlens.errors import UncountedTensor, UnsupportedOperator, UsageError  # noqa: E402
from memlens.model import Category  # noqa: E402

pytestmark = [
    pytest.mark.torch,
    pytest.mark.filterwarnings("ignore:Sparse"),  # torch's own: invariants are not checked, CSR is in beta
]
IDS, WIDTH, WORDS = 256, 64, 1000
EDGES = torch.stack([torch.arange(500) % 40, torch.arange(500) % 37])


def graph(**options: Any) -> Any:
    """A 40 x 40 matrix of 500 entries: 8,000 bytes of indices and 2,000 of values."""
    return torch.sparse_coo_tensor(EDGES, torch.ones(500), (40, 40), **options)


def held() -> int:
    """What the live blocks were asked for, without rounding."""
    requested: int = torch.cuda.memory_stats()["requested_bytes.all.current"]
    return requested


def train(optimizer: Any) -> tuple[Any, memlens.Trace]:
    """The gradient of the last of two steps of a sparse embedding, and the record."""
    with memlens.simulate("T4") as sim:
        layer = torch.nn.Embedding(WORDS, WIDTH, sparse=True).cuda()
        stepping = optimizer(list(layer.parameters()))
        ids = torch.randint(0, WORDS, (IDS,)).cuda()
        for _ in range(2):
            stepping.zero_grad()
            layer(ids).sum().backward()
            assert (layer.weight.grad.device.type, layer.weight.grad._nnz()) == ("cuda", IDS)
            stepping.step()
        sim.trace.check()
        return held(), sim.trace


@pytest.mark.parametrize(
    ("optimizer", "states"),
    [
        (lambda p: torch.optim.SGD(p, lr=0.1), 0),
        (lambda p: torch.optim.Adagrad(p), 1),
        (lambda p: torch.optim.SparseAdam(p), 2),
    ],
    ids=["sgd", "adagrad", "sparse_adam"],
)
def test_a_sparse_embedding_has_gradients_of_the_words_it_saw(optimizer: Any, states: int) -> None:
    """256 rows of 64 numbers and 256 int64 in place of 1,000 rows; the states are dense all the same."""
    _, trace = train(optimizer)
    held_at_the_end = trace.breakdown(len(trace.events) - 1).by_category()
    peak = trace.breakdown().by_category()
    assert peak[Category.GRADIENT] == IDS * WIDTH * 4 + IDS * 8
    assert peak.get(Category.OPTIMIZER_STATE, 0) == states * WORDS * WIDTH * 4
    assert sum(held_at_the_end.values()) <= sum(peak.values())


def test_equal_words_may_be_one_entry() -> None:
    """Adam sums the gradients of equal words: how many there are is not known, and that is said."""
    _, trace = train(lambda p: torch.optim.SparseAdam(p))
    (told,) = [item for item in trace.assumptions if "all different" in item.what]
    assert told.what.startswith("the 256 entries of a sparse tensor at ")
    assert told.low_bytes == -(IDS * WIDTH * 4 + IDS * 8)


@pytest.mark.parametrize(
    "make",
    [
        lambda: graph().cuda(),
        lambda: graph().to(device="cuda"),
        lambda: graph(device="cuda"),
        lambda: torch.sparse_coo_tensor(EDGES.cuda(), torch.ones(500, device="cuda"), (40, 40)),
        lambda: torch.sparse_coo_tensor(EDGES.cuda(), torch.ones(500).cuda(), size=(40, 40), device="cuda"),
    ],
)
def test_however_it_comes_to_the_card(make: Any) -> None:
    """Copied, or made of what is there: 500 entries of two int64 and a float."""
    with memlens.simulate("T4"):
        matrix = make()
        assert (matrix.device.type, matrix.is_cuda, matrix._nnz()) == ("cuda", True, 500)
        assert held() == 500 * (2 * 8 + 4)
        assert matrix.cpu().device.type == "cpu"
        del matrix
        assert held() == 0


def test_a_size_that_is_not_given_is_asked_for() -> None:
    """Indices on the card are not computed, so the largest of them is not known."""
    with memlens.simulate("T4"), pytest.raises(UsageError, match="needs its size"):
        torch.sparse_coo_tensor(EDGES.cuda(), torch.ones(500, device="cuda"))


def test_neighbours_are_added_up() -> None:
    """A graph times features, forward and backward: outputs and gradients are dense, 40 x 8."""
    with memlens.simulate("T4") as sim:
        matrix = graph().coalesce().cuda()
        features = torch.randn(40, 8, device="cuda", requires_grad=True)
        before = held()
        out = torch.sparse.mm(matrix, features)
        assert (tuple(out.shape), held() - before) == ((40, 8), 40 * 8 * 4)
        out.sum().backward()
        assert tuple(features.grad.shape) == (40, 8)
        (matrix @ features).sum().backward()
        sim.trace.check()


def test_a_compressed_matrix() -> None:
    """CSR: 41 and 37 int64 of rows and columns, 37 values; and its product."""
    with memlens.simulate("T4"):
        matrix = torch.eye(40)[:37].to_sparse_csr().cuda()
        assert held() == (38 + 37) * 8 + 37 * 4
        assert tuple((matrix @ torch.ones(40, 3, device="cuda")).shape) == (37, 3)


def sizes(call: Any, shape: tuple[int, ...]) -> Iterable[int]:
    return asked(call, shape)


def test_a_dense_matrix_becomes_sparse_with_at_most_all_its_elements() -> None:
    """20 x 10: 200 entries of two int64, and 200 values."""
    assert sizes(lambda x: x.to_sparse(), (20, 10)) == [200 * 2 * 8, 200 * 4]


def test_coalescing_works_with_int64_of_every_entry() -> None:
    """Flattened indices, their order, offsets and the sort's; then values and indices anew."""
    count = 200

    def coalesced(values: Any) -> Any:
        places = torch.zeros(2, count, dtype=torch.int64, device="cuda")
        return torch.sparse_coo_tensor(places, values, (9, 9)).coalesce()

    made = list(sizes(coalesced, (count,)))
    assert made == [2 * count * 8, *[count * 8] * 3, 2 * count * 8, count * 4, 2 * count * 8]


def test_what_is_not_simulated_says_so() -> None:
    """The product of two sparse matrices would need their data."""
    with (
        memlens.simulate("T4"),
        pytest.raises(UnsupportedOperator, match="is not simulated for sparse"),
    ):
        torch.sparse.mm(graph().cuda(), graph().cuda())
    with memlens.simulate("T4"), pytest.raises(UnsupportedOperator, match="is not simulated for sparse"):
        graph().cuda().sin()


def test_a_hidden_storage_of_a_sparse_tensor_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    """Values that the ledger does not hold make the product an error, not a silent zero."""
    with memlens.simulate("T4") as sim:
        matrix = graph().cuda()
        entry = sim.ledger.of(matrix)
        assert entry is not None
        monkeypatch.delitem(sim.ledger.storages, entry.key)
        with pytest.raises(UncountedTensor, match=r"mm at .*test_sparse.py:\d+ uses a tensor of"):
            torch.sparse.mm(matrix, torch.ones(40, 8, device="cuda"))
