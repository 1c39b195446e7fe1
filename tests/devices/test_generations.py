"""What cards of one compute capability have in common: every generation of the catalogue has every fact."""

from __future__ import annotations

from dataclasses import fields

import pytest

from memlens.devices import all_gpus, find_gpu
from memlens.devices.catalogue import read_catalogue
from memlens.devices.generations import Generation, all_generations, generation_of

NVIDIA = sorted({gpu.compute_capability for gpu in all_gpus() if gpu.vendor == "nvidia"})
FACTS = {field.name for field in fields(Generation)} - {"compute_capability", "l2_bytes"} | {"l2_mib"}


@pytest.mark.parametrize("capability", NVIDIA, ids=str)
def test_every_generation_in_the_catalogue_has_every_fact(capability: tuple[int, int]) -> None:
    """No card is taken for one of an older generation in silence: facts and context are its own."""
    key = ".".join(map(str, capability))
    assert set(read_catalogue()["generation"][key]) == FACTS
    assert key in read_catalogue()["context"]
    assert generation_of(capability).compute_capability == capability
    assert generation_of(capability).source


def test_a_generation_without_a_table_would_be_seen() -> None:
    """The check, broken once on purpose: 12.1 is answered by the generation before it."""
    assert generation_of((12, 1)).compute_capability == (12, 0)
    assert generation_of((3, 5)).compute_capability == (6, 0)


def test_generations_are_in_order() -> None:
    """The one before an unknown one is found by order."""
    known = [generation.compute_capability for generation in all_generations()]
    assert known == sorted(set(known))


@pytest.mark.parametrize(
    ("card", "l2_mib", "threads", "bf16", "workspace"),
    [
        ("P100", 4, 2048, False, 8_519_680),
        ("V100 16GB", 6, 2048, False, 8_519_680),
        ("T4", 4, 1024, False, 8_519_680),
        ("A100 40GB", 40, 2048, True, 8_519_680),
        ("4090", 72, 1536, True, 8_519_680),
        ("H100", 50, 2048, True, 33_554_432),
        ("B200", 126.5, 2048, True, 33_554_432),
        ("5090", 96, 1536, True, 33_554_432),
    ],
)
def test_facts_of_common_cards(card: str, l2_mib: float, threads: int, bf16: bool, workspace: int) -> None:
    """From NVIDIA's whitepapers, the CUDA programming guide and PyTorch's CublasHandlePool.cpp."""
    generation = find_gpu(card).generation
    assert generation.l2_bytes == l2_mib * 2**20
    assert generation.threads_per_sm == threads
    assert (generation.bf16, generation.tf32) == (bf16, bf16)  # both came with Ampere
    assert generation.cublas_workspace_bytes == workspace


def test_amd_cards_state_their_own_workspace() -> None:
    """Their gfx numbers look like compute capabilities; the tables of generations are not about them."""
    amd = [entry for entry in read_catalogue()["gpu"] if entry.get("vendor") == "amd"]
    assert len(amd) == 2
    assert all("cublas_workspace_bytes" in entry for entry in amd)


@pytest.mark.torch
def test_attention_knows_the_newest_generation() -> None:
    """PyTorch's checks have a newest: a card beyond it would fall to the math kernel."""
    pytest.importorskip("torch")
    from memlens.simulation.rules.attention.choice import NEWEST

    assert max(NVIDIA) <= NEWEST


@pytest.mark.torch
@pytest.mark.parametrize(("card", "threads"), [("T4", 1024), ("B300", 2048), ("4090", 1536)])
def test_a_simulated_card_answers_with_them(card: str, threads: int) -> None:
    """`get_device_properties` and the rule of reductions read the same table."""
    torch = pytest.importorskip("torch")
    import memlens

    with memlens.simulate(card):
        properties = torch.cuda.get_device_properties(0)
        assert properties.max_threads_per_multi_processor == threads
        assert properties.L2_cache_size == find_gpu(card).generation.l2_bytes
        assert torch.cuda.is_bf16_supported(including_emulation=False) is (card != "T4")
