"""The catalogue: pinned figures, names as people type them, and what every entry must have."""

from __future__ import annotations

import pytest

from memlens.devices import all_gpus, as_gpu, custom_gpu, find_gpu
from memlens.errors import UsageError
from memlens.units import GIB, MIB

SMALL_WORKSPACE, LARGE_WORKSPACE = 8_519_680, 33_554_432


@pytest.mark.parametrize(
    ("name", "memory_bytes", "capability", "multiprocessors", "workspace"),
    [
        ("t4", 15_634_661_376, (7, 5), 40, SMALL_WORKSPACE),
        ("v100 16gb", 16_913_530_880, (7, 0), 80, SMALL_WORKSPACE),
        ("a100 40gb", 42_297_786_368, (8, 0), 108, SMALL_WORKSPACE),
        ("3090", 25_295_847_424, (8, 6), 82, SMALL_WORKSPACE),
        ("4090", 25_216_155_648, (8, 9), 128, SMALL_WORKSPACE),
        ("h100", 84_942_979_072, (9, 0), 132, LARGE_WORKSPACE),
        ("5090", 33_661_386_752, (12, 0), 170, LARGE_WORKSPACE),
    ],
)
def test_figures_of_common_cards(
    name: str, memory_bytes: int, capability: tuple[int, int], multiprocessors: int, workspace: int
) -> None:
    """Memory as torch reports it (the smallest reading), and cuBLAS' 32 MiB from Hopper on, 8.125 before."""
    gpu = find_gpu(name)
    assert gpu.memory_bytes == memory_bytes
    assert gpu.compute_capability == capability
    assert gpu.multiprocessors == multiprocessors
    assert gpu.cublas_workspace_bytes == workspace


def test_measured_contexts_are_kept() -> None:
    """The T4's context is the measured 104.875 MiB at start and 140.875 after a training step."""
    assert find_gpu("T4").context_bytes[:2] == (int(104.875 * MIB), int(140.875 * MIB))
    assert find_gpu("3090").context_bytes[1] == 256 * MIB
    assert find_gpu("rtx 6000 ada").context_bytes[1] == 426 * MIB


@pytest.mark.parametrize(
    ("typed", "name"),
    [
        ("4090", "NVIDIA GeForce RTX 4090"),
        ("rtx4090", "NVIDIA GeForce RTX 4090"),
        ("4090 24GB", "NVIDIA GeForce RTX 4090"),
        ("4090 mobile", "NVIDIA GeForce RTX 4090 Laptop GPU"),
        ("a100-80gb", "NVIDIA A100-SXM4-80GB"),
        ("A100 80 GB", "NVIDIA A100-SXM4-80GB"),
        ("A100 80", "NVIDIA A100-SXM4-80GB"),
        ("NVIDIA A100 80GB PCIe", "NVIDIA A100-SXM4-80GB"),
        ("NVIDIA A100-SXM4-80GB", "NVIDIA A100-SXM4-80GB"),
        ("A100 40GB", "NVIDIA A100-SXM4-40GB"),
        ("RTX 3060 12GB", "NVIDIA GeForce RTX 3060 12GB"),
        ("h100", "NVIDIA H100 80GB HBM3"),
        ("H100 PCIe", "NVIDIA H100 PCIe"),
        ("h100 nvl", "NVIDIA H100 NVL"),
        ("Tesla T4", "Tesla T4"),
        ("TESLA V100-SXM2-32GB", "Tesla V100-SXM2-32GB"),
        ("3080 laptop 16gb", "NVIDIA GeForce RTX 3080 Laptop GPU 16GB"),
        ("2080ti", "NVIDIA GeForce RTX 2080 Ti"),
        ("4070", "NVIDIA GeForce RTX 4070"),
        ("4070 ti super", "NVIDIA GeForce RTX 4070 Ti SUPER"),
        ("4080s", "NVIDIA GeForce RTX 4080 SUPER"),
        ("RTX A6000", "NVIDIA RTX A6000"),
        ("rtx_6000_ada", "NVIDIA RTX 6000 Ada Generation"),
        ("rtx pro 6000", "NVIDIA RTX PRO 6000 Blackwell Workstation Edition"),
        ("TITAN RTX", "NVIDIA TITAN RTX"),
        ("titan v", "NVIDIA TITAN V"),
        ("gh200", "NVIDIA GH200 480GB"),
        ("MI300X", "AMD Instinct MI300X"),
    ],
)
def test_names_as_people_type_them(typed: str, name: str) -> None:
    """A spelling that people use finds the one card that it means, without a note."""
    gpu = find_gpu(typed)
    assert gpu.name == name
    assert gpu.note == ""


@pytest.mark.parametrize(
    ("typed", "name", "others"),
    [
        ("a100", "NVIDIA A100-SXM4-40GB", ["NVIDIA A100-SXM4-80GB"]),
        ("4060 ti", "NVIDIA GeForce RTX 4060 Ti 8GB", ["NVIDIA GeForce RTX 4060 Ti 16GB"]),
        ("3060", "NVIDIA GeForce RTX 3060 8GB", ["NVIDIA GeForce RTX 3060 12GB"]),
        ("v100", "Tesla V100-SXM2-16GB", ["Tesla V100-SXM2-32GB"]),
        (
            "3080 laptop",
            "NVIDIA GeForce RTX 3080 Laptop GPU 8GB",
            ["NVIDIA GeForce RTX 3080 Laptop GPU 16GB"],
        ),
    ],
)
def test_a_name_of_several_cards_gives_the_smallest_and_says_so(
    typed: str, name: str, others: list[str]
) -> None:
    """Of cards with different memory the smaller is the safe side, and the note names the others."""
    gpu = find_gpu(typed)
    assert gpu.name == name
    assert "smallest memory" in gpu.note
    assert all(other in gpu.note for other in others)


@pytest.mark.parametrize(
    ("typed", "near"),
    [("4099", "RTX 4090"), ("A100X", "A100"), ("h1000", "H100"), ("rtx 3080 tii", "3080 Ti")],
)
def test_an_unknown_name_gets_the_nearest(typed: str, near: str) -> None:
    """A misspelt card is an error that offers the cards nearest to it."""
    with pytest.raises(UsageError, match="knows no GPU") as error:
        find_gpu(typed)
    assert near in str(error.value.hint)


@pytest.mark.parametrize("typed", ["", "banana", "rtx", "80gb", "nvidia geforce", "24"])
def test_what_names_no_card_is_an_error_with_a_way_out(typed: str) -> None:
    """Neither noise words nor a size alone name a card; the hint says what to do instead."""
    with pytest.raises(UsageError) as error:
        find_gpu(typed)
    assert "--memory 24GiB" in str(error.value.hint)


def test_every_card_finds_itself() -> None:
    """The catalogue's own names and aliases lead back to their card, alone."""
    for gpu in all_gpus():
        for spelling in (gpu.name, *gpu.aliases):
            assert find_gpu(spelling) == gpu, spelling


def test_every_entry_is_sane() -> None:
    """Each card has sources, ordered ranges, and no more memory than its nominal size in GiB."""
    gpus = all_gpus()
    assert len(gpus) >= 45
    assert len({gpu.name for gpu in gpus}) == len(gpus)
    for gpu in gpus:
        low, expected, high = gpu.context_bytes
        assert 0 < low <= expected <= high < gpu.memory_bytes, gpu.name
        assert gpu.memory_range[0] == gpu.memory_bytes <= gpu.memory_range[1] <= gpu.nominal_gb * GIB, (
            gpu.name
        )
        assert gpu.memory_bytes > 0.85 * gpu.nominal_gb * GIB, gpu.name
        assert gpu.source, gpu.name
        assert gpu.context.source, gpu.name
        assert gpu.multiprocessors > 0, gpu.name


def test_an_estimate_is_not_called_verified() -> None:
    """A card whose source is an estimate has verified = False, and so have the AMD cards."""
    for gpu in all_gpus():
        if gpu.source.startswith("estimate") or gpu.vendor == "amd":
            assert not gpu.verified, gpu.name


def test_a_memory_without_a_name() -> None:
    """--memory 24GiB is a card of which only the memory is known, and what is assumed is stated."""
    gpu = custom_gpu(24 * GIB)
    assert gpu.memory_bytes == 24 * GIB
    assert gpu.compute_capability == (8, 0)
    assert gpu.cublas_workspace_bytes == LARGE_WORKSPACE
    assert gpu.context_bytes == (80 * MIB, 450 * MIB, 1_801 * MIB)
    assert gpu.context.plain_bytes == (80 * MIB, 450 * MIB, 1_451 * MIB)
    assert "8.0" in gpu.note


def test_a_card_that_is_no_text_is_refused() -> None:
    """gpu=4090 in Python is told to be text; a card stays itself."""
    with pytest.raises(UsageError, match="gpu=4090 names no card") as raised:
        as_gpu(4090)  # type: ignore[arg-type]
    assert raised.value.hint == 'write the name as text: gpu="4090"'
    assert as_gpu(card := find_gpu("4090")) is card


def test_no_memory_is_an_error() -> None:
    """A card without memory cannot be asked for."""
    with pytest.raises(UsageError, match="needs memory"):
        custom_gpu(0)


def test_the_device_of_a_trace() -> None:
    """What a trace keeps of a card is its name, memory, capability and context."""
    device = find_gpu("t4").device()
    assert (device.name, device.memory_bytes, device.compute_capability) == (
        "Tesla T4",
        15_634_661_376,
        (7, 5),
    )
