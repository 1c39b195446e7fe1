"""The simulated allocator, step by step, in the tiny trace language."""

from __future__ import annotations

import pytest
from tests.support.tiny_trace import play

from memlens.allocator import AllocatorConfig, CachingAllocator, DeviceFull, parse_config
from memlens.units import MIB


def test_small_and_large_pools_have_their_own_segments() -> None:
    """1 MiB comes from a 2 MiB segment, one byte more from a 20 MiB segment."""
    game = play("a+1M b+1048577")
    assert game.segments == ["+2M", "+20M"]
    assert game.allocator.small_statistics.reserved_bytes.current == 2 * MIB


def test_best_fit_takes_the_smallest_block_that_fits() -> None:
    """Of free blocks of 30 and 20 MiB, a request of 15 MiB takes the 20 MiB one."""
    game = play("a+30M b+20M b- a- c+15M")
    assert game.blocks["c"].address == game.blocks["c"].segment.address
    assert game.blocks["c"].segment.size == 20 * MIB


def test_equal_sizes_go_by_address() -> None:
    """Among equal free blocks the lowest address wins, whatever was freed last."""
    game = play("a+2M b+2M c+2M d+2M e+2M f+2M g+2M h+2M i+2M j+2M")
    low, high = game.blocks["b"].address, game.blocks["d"].address
    game("d- b- x+2M y+2M")
    assert (game.blocks["x"].address, game.blocks["y"].address) == (low, high)


def test_a_rest_of_up_to_one_mib_stays_with_the_block() -> None:
    """19 MiB from a 20 MiB block leaves 1 MiB, too little to split: the block counts with 20 MiB."""
    game = play("a+20M a- b+19M")
    assert game.blocks["b"].size == 20 * MIB
    assert game.allocator.allocated_bytes == 20 * MIB
    assert game.allocator.stats()["requested_bytes.all.current"] == 19 * MIB


def test_neighbours_merge_on_free() -> None:
    """Three freed neighbours become one block again, and the segment is whole."""
    game = play("a+4M b+4M c+4M a- c- b-")
    (segment,) = game.allocator.snapshot_segments()
    assert [block.bytes for block in segment.blocks] == [20 * MIB]
    assert game.allocator.stats()["inactive_split_bytes.all.current"] == 0


def test_streams_never_share_a_block() -> None:
    """A block freed on stream 0 is not given to stream 7."""
    assert play("a+4M a- b+4M@7").segments == ["+20M", "+20M"]


def test_a_block_used_on_another_stream_waits() -> None:
    """After record_stream a freed block is active, not allocated, until the streams are synchronized."""
    game = play("a+4M")
    game.allocator.record_stream(game.blocks["a"], 3)
    game("a-")
    stats = game.allocator.stats()
    assert (stats["allocated_bytes.all.current"], stats["active_bytes.all.current"]) == (0, 4 * MIB)
    assert game("b+4M").offset("b") == 4 * MIB
    assert game("sync c+4M").offset("c") == 0


def test_empty_cache_keeps_segments_in_use() -> None:
    """Of two segments, the one with a living block stays whole."""
    game = play("a+4M b+30M b- empty")
    assert game.segments == ["+20M", "+30M", "-30M"]
    assert game.allocator.reserved_bytes == 20 * MIB


def test_freeing_twice_is_an_error() -> None:
    """A block that was freed cannot be freed again, and 0 bytes cannot be asked for."""
    allocator = CachingAllocator()
    block = allocator.malloc(512)
    allocator.free(block)
    with pytest.raises(ValueError, match="not allocated"):
        allocator.free(block)
    with pytest.raises(ValueError, match="0 bytes"):
        allocator.malloc(0)


def test_a_full_device_releases_what_is_cached_and_retries() -> None:
    """With 50 MiB, a cached 30 MiB segment goes back before 40 MiB are taken."""
    game = play("a+30M a- b+40M", capacity_bytes=50 * MIB)
    assert game.segments == ["+30M", "-30M", "+40M"]
    assert game.allocator.stats()["num_alloc_retries"] == 1


def test_a_split_segment_cannot_be_released() -> None:
    """One small living tensor in a 30 MiB segment keeps it from the 40 MiB request: fragmentation."""
    with pytest.raises(DeviceFull) as error:
        play("a+30M a- k+2M b+40M", capacity_bytes=50 * MIB)
    assert error.value.reserved_bytes == 30 * MIB
    assert error.value.allocated_bytes == 2 * MIB


def test_the_message_is_pytorchs() -> None:
    """The numbers of the message: what was wanted is the segment, 20 MiB for a request of 3 MiB."""
    allocator = CachingAllocator(capacity_bytes=30 * MIB, total_bytes=32 * MIB)
    allocator.malloc(14 * MIB + MIB // 2)
    with pytest.raises(DeviceFull) as error:
        allocator.malloc(3 * MIB)
    assert str(error.value) == (
        "CUDA out of memory. Tried to allocate 20.00 MiB. GPU 0 has a total capacity of 32.00 MiB "
        "of which 14.00 MiB is free. Including non-PyTorch memory, this process has 18.00 MiB memory in use. "
        "Of the allocated memory 14.50 MiB is allocated by PyTorch, "
        "and 1.50 MiB is reserved by PyTorch but unallocated. If reserved but unallocated memory is large "
        "try setting PYTORCH_CUDA_ALLOC_CONF=expandable_segments:True to avoid fragmentation.  "
        "See documentation for Memory Management  (https://docs.pytorch.org/docs/stable/notes/cuda.html"
        "#optimizing-memory-usage-with-pytorch-cuda-alloc-conf)"
    )


def test_no_advice_that_is_followed_already() -> None:
    """With expandable segments on, the message does not advise them."""
    with pytest.raises(DeviceFull) as error:
        play("a+100M", AllocatorConfig(expandable_segments=True), 50 * MIB)
    assert "expandable_segments" not in str(error.value)


def test_oversize_blocks_are_kept_for_oversize_requests() -> None:
    """With max_split_size_mb:40, a cached 50 MiB block serves 45 MiB whole, and never 30 MiB."""
    config = parse_config("max_split_size_mb:40")
    assert play("a+50M a- b+30M", config).segments == ["+50M", "+30M"]
    game = play("a+50M a- b+45M", config)
    assert game.segments == ["+50M"]
    assert game.blocks["b"].size == 50 * MIB
    assert play("a+80M a- b+45M", config).segments == ["+80M", "+46M"]


def test_oversize_blocks_go_first_when_the_device_is_full() -> None:
    """60 MiB in a device of 80 with 50 and 12 MiB cached: the oversize one goes, then all that is left."""
    config = parse_config("max_split_size_mb:40")
    game = play("a+50M b+12M a- b- c+60M", config, 80 * MIB)
    assert game.segments == ["+50M", "+12M", "-50M", "-12M", "+60M"]


def test_garbage_is_collected_before_the_device_is_asked() -> None:
    """Above the threshold, the segments unused for longer than the average go before one is taken."""
    config = parse_config("garbage_collection_threshold:0.6,per_process_memory_fraction:0.9")
    game = play("a+20M b+24M a- c+24M c- d+30M", config, 100 * MIB)
    assert game.segments == ["+20M", "+24M", "+24M", "-20M", "+30M"]


def test_a_memory_fraction_is_a_limit_of_its_own() -> None:
    """With a fraction of 0.5 of 100 MiB, 60 MiB do not fit, and the message says what is allowed."""
    with pytest.raises(DeviceFull, match=r"50.00 MiB allowed; "):
        play("a+60M", parse_config("per_process_memory_fraction:0.5"), 100 * MIB)


def test_expandable_segments_grow_by_pages() -> None:
    """The large pool maps 20 MiB at a time, the small pool 2 MiB, each into one address range."""
    game = play("a+30M b+25M s+1M t+1M u+1M", AllocatorConfig(expandable_segments=True))
    assert game.segments == ["map40M", "map20M", "map2M", "map2M"]
    assert game.blocks["b"].address == game.blocks["a"].address + 30 * MIB
    assert game.allocator.reserved_bytes == 64 * MIB


def test_expandable_segments_give_back_whole_pages() -> None:
    """Of 60 mapped MiB with 5 MiB alive in the middle, the free pages around them go back."""
    config = AllocatorConfig(expandable_segments=True)
    game = play("a+25M b+5M c+30M a- c- empty", config, 100 * MIB)
    assert game.allocator.reserved_bytes == 20 * MIB
    assert game.segments == ["map40M", "map20M", "unmap20M", "unmap20M"]
    game("b- empty")
    assert game.allocator.reserved_bytes == 0
    assert game.allocator.snapshot_segments() == []


def test_unmapped_pages_can_be_used_for_a_larger_request() -> None:
    """90 MiB fit into 100 after 60 + 30 MiB were freed: expandable segments do not fragment here."""
    config = AllocatorConfig(expandable_segments=True)
    game = play("a+60M b+30M a- b- c+90M", config, 100 * MIB)
    assert game.allocator.reserved_bytes == 100 * MIB
    assert game.offset("c") == 0


def test_stats_have_the_keys_of_pytorch() -> None:
    """The keys of torch.cuda.memory_stats(), whose table memory_summary() prints."""
    stats = CachingAllocator().stats()
    kinds = (
        "active active_bytes allocated_bytes allocation inactive_split inactive_split_bytes "
        "requested_bytes reserved_bytes segment"
    ).split()
    for kind in kinds:
        for pool in ("all", "large_pool", "small_pool"):
            for figure in ("current", "peak", "allocated", "freed"):
                assert stats.pop(f"{kind}.{pool}.{figure}") == 0
    assert {key.partition(".")[0] for key in stats} == {
        "max_split_size", "num_alloc_retries", "num_device_alloc", "num_device_free", "num_ooms",
        "oversize_allocations", "oversize_segments",
    }  # fmt: skip


def test_active_peaks_count_what_waits() -> None:
    """4 MiB waiting for a stream and 6 allocated after: 10 active at the peak, 6 allocated."""
    game = play("a+4M")
    game.allocator.record_stream(game.blocks["a"], 3)
    stats = game("a- b+6M sync").allocator.stats()
    assert stats["active_bytes.all.peak"] == 10 * MIB
    assert stats["allocated_bytes.all.peak"] == 6 * MIB
    assert stats["active_bytes.all.current"] == stats["requested_bytes.all.current"] == 6 * MIB
