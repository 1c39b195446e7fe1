"""What a user of a tracker reads: the article's VGG19, on the CPU and on a GPU that is not there."""

from __future__ import annotations

import importlib.util
import inspect
import io
import re
import sys
from pathlib import Path
from types import ModuleType

import pytest

pytest.importorskip("torch")

import torch
from torch import nn

import memlens
from memlens import MemTracker
from memlens.errors import UsageError
from memlens.model.tensors import TensorReport

pytestmark = [pytest.mark.torch, pytest.mark.usefixtures("own_models")]
VGG19_PARAMETER_BYTES = 4 * 143_667_240  # 143.67 million parameters, published by its authors
MIB = 1 << 20


@pytest.fixture(scope="module")
def article() -> ModuleType:
    """The example that follows the article, as a module."""
    path = Path(__file__).parents[2] / "examples" / "track_vgg19.py"
    spec = importlib.util.spec_from_file_location("track_vgg19", path)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def rows(text: str, sign: str) -> dict[str, int]:
    """Shape -> count of the rows that begin with `sign`."""
    found = re.findall(rf"^{re.escape(sign)} \| (\d+) \* Size:(\([^)]*\))", text, re.MULTILINE)
    return {shape: int(count) for count, shape in found}


# the rows that the article prints, but for the two counts that its first lines cut off (VGG19 has seven
# convolutions of 512 to 512 channels, eight biases of 512, four of 256 and three of 256 to 256)
ARTICLE_ROWS = {
    "(64, 3, 3, 3)": 1,
    "(64, 64, 3, 3)": 1,
    "(64,)": 2,
    "(128, 64, 3, 3)": 1,
    "(128, 128, 3, 3)": 1,
    "(128,)": 2,
    "(256, 128, 3, 3)": 1,
    "(256, 256, 3, 3)": 3,
    "(256,)": 4,
    "(512, 256, 3, 3)": 1,
    "(512, 512, 3, 3)": 7,
    "(512,)": 8,
    "(4096, 25088)": 1,
    "(4096, 4096)": 1,
    "(4096,)": 2,
    "(1000, 4096)": 1,
    "(1000,)": 1,
}


@pytest.mark.parametrize("device", ["cpu", "cuda:0"])
def test_the_article_runs_as_printed(article: ModuleType, device: str, capsys) -> None:
    """Loading VGG19 shows its 38 parameters by shape, 548.05 MiB, with their names."""
    if device == "cpu":
        article.main(device)
    else:
        with memlens.simulate("T4"):
            article.main(device)
    printed = capsys.readouterr().out
    assert printed.count("Total Tensor Used Memory:") == 2
    second = printed[printed.rindex("At ") :]
    assert rows(second, "+") == ARTICLE_ROWS
    assert "| parameter | float32 | 38.weight" in second
    totals = [float(size) for size in re.findall(r"Used Memory: ([\d.]+) MiB", printed)]
    assert totals[1] - totals[0] == pytest.approx(VGG19_PARAMETER_BYTES / MIB, abs=0.01)


def test_the_gap_to_nvidia_smi_is_explained(article: ModuleType, capsys) -> None:
    """After a forward every part of the simulated T4 has a name, and they sum to the driver's figure."""
    with memlens.simulate("T4") as simulation:
        article.main("cuda:0")
    printed = capsys.readouterr().out
    table = printed[printed.rindex("tensors  ") :]
    sizes = [float(size.replace(",", "")) for size in re.findall(r"([\d.,]+) MiB$", table, re.MULTILINE)]
    assert sum(sizes[:-1]) == pytest.approx(sizes[-1], abs=0.05)
    for part in ("library workspaces", "cached, unused", "CUDA context", "other processes", "nvidia-smi"):
        assert part in table
    assert "1 cuBLAS workspace of 8,519,680 B" in table
    assert simulation.gpu.context_bytes[1] / MIB == pytest.approx(sizes[-3], abs=0.01)


def test_a_frame_is_accepted_and_so_is_none() -> None:
    """`MemTracker(frame)` is the article's call; newer copies of that tool take `detail` first."""
    assert MemTracker(inspect.currentframe(), device="cpu").detail is True
    assert MemTracker(False, device="cpu").detail is False
    assert MemTracker(device="cpu").detail is True


def test_a_callback_gets_the_look_and_nothing_is_printed(capsys) -> None:
    """The changes come as data: 4,096 bytes of one (32, 32) tensor, and the line that asked."""
    looks: list[TensorReport] = []
    tracker = MemTracker(device="cpu", callback=looks.append)
    tracker.track()
    x = torch.zeros(32, 32)
    tracker.track()
    del x
    tracker.track()
    tracker.close()
    assert [(row.count, row.shape, row.bytes) for row in looks[1].came] == [(1, (32, 32), 4096)]
    assert [(row.count, row.shape, row.bytes) for row in looks[2].gone] == [(1, (32, 32), 4096)]
    assert looks[2].line == looks[1].line + 2
    assert looks[1].to_dict()["came"][0]["dtype"] == "float32"
    assert capsys.readouterr().out == ""


def test_a_change_of_count_prints_the_change_only(capsys) -> None:
    """One more tensor of a shape that was there before is `+ 1`, with no `-` row."""
    kept = [torch.zeros(77) for _ in range(3)]
    tracker = MemTracker(device="cpu", stream=(out := io.StringIO()))
    tracker.track()
    kept.append(torch.zeros(77))
    out.truncate(0)
    tracker.track()
    assert rows(out.getvalue(), "+") == {"(77,)": 1}
    assert rows(out.getvalue(), "-") == {}
    tracker.close()


def test_a_directory_gets_a_file_named_by_the_time(tmp_path: Path) -> None:
    """The file's name has no colon, so that Windows takes it; calls append to it."""
    tracker = MemTracker(device="cpu", path=tmp_path)
    tracker.track()
    tracker.track()
    tracker.close()
    (file,) = tmp_path.iterdir()
    assert file.name.endswith("-gpu_mem_track.txt")
    assert ":" not in file.name
    assert file.read_text().count("Total Tensor Used Memory") == 2


def test_workspaces_are_no_leak() -> None:
    """After one Linear(1, 1) the 8,519,680 B that remain are named a cuBLAS workspace (pytorch#95668)."""
    with memlens.simulate("T4"):
        tracker = MemTracker(callback=lambda look: None)
        model = nn.Linear(1, 1).cuda()
        model(torch.ones(1, 1, device="cuda"))
        gap = tracker.gap()
        tracker.close()
    assert gap.workspaces == ("1 cuBLAS workspace of 8,519,680 B",)
    assert gap.workspace_bytes == 8_519_680
    assert gap.unseen_bytes == 0


def test_workspaces_can_be_cleared() -> None:
    """`torch._C._cuda_clearCublasWorkspaces()` frees them, and the next product takes one again."""
    with memlens.simulate("T4"):
        a = torch.ones(128, 1, device="cuda")
        a @ a.t()
        assert torch.cuda.memory_allocated() == 512 + 8_519_680
        torch._C._cuda_clearCublasWorkspaces()
        assert torch.cuda.memory_allocated() == 512
        a @ a.t()
        assert torch.cuda.memory_allocated() == 512 + 8_519_680


def test_hopper_has_the_larger_workspace() -> None:
    """On an H100 it is 32 MiB, and two after a backward."""
    with memlens.simulate("H100 80GB"):
        tracker = MemTracker(callback=lambda look: None)
        model = nn.Linear(1, 1).cuda()
        model(torch.ones(1, 1, device="cuda")).sum().backward()
        gap = tracker.gap()
        tracker.close()
    assert gap.workspaces == ("2 cuBLAS workspaces of 33,554,432 B",)


def test_the_gap_needs_a_device() -> None:
    """On the CPU there is no driver's figure to explain."""
    tracker = MemTracker(device="cpu")
    with pytest.raises(UsageError, match="device cpu"):
        tracker.gap()
    tracker.close()


def test_track_as_a_block(capsys) -> None:
    """What the block left behind is said once, and shown."""
    with memlens.track("cpu", name="loading"):
        x = torch.zeros(1 << 18)
    printed = capsys.readouterr().out
    assert printed.startswith("loading: +1.00 MiB of tensors left behind\n")
    assert rows(printed, "+") == {"(262144,)": 1}
    del x


@pytest.mark.parametrize(("given", "device"), [("cpu", "cpu"), ("mps", "mps:0"), ("cuda:1", "cuda:1")])
def test_a_device_has_its_number(given: str, device: str) -> None:
    """Tensors say `mps:0`, people `mps`."""
    from memlens.integrations.tracker import resolve

    assert resolve(given) == torch.device(device)


def test_usage_figures() -> None:
    """`get_tensor_usage()` is MiB; on the CPU it is the allocator's figure as well."""
    tracker = MemTracker(device="cpu")
    before = tracker.get_tensor_usage()
    x = torch.zeros(1 << 18)
    assert tracker.get_tensor_usage() - before == pytest.approx(1.0, abs=1e-6)
    assert tracker.get_allocate_usage() == tracker.get_tensor_usage()
    tracker.print_all_gpu_tensor(out := io.StringIO())
    assert "= | 1 * Size:(262144,)" in re.sub(" +", " ", out.getvalue())
    tracker.close()
    del x


def test_the_old_tools_module_name() -> None:
    """`from gpu_mem_track import MemTracker`, as old scripts have it, is the same class."""
    import gpu_mem_track
    from memlens.compat import gpu_mem_track as documented

    assert gpu_mem_track.MemTracker is documented.MemTracker is MemTracker


@pytest.mark.shared
def test_the_articles_own_lines(
    shared: Path, article: ModuleType, monkeypatch: pytest.MonkeyPatch, capsys
) -> None:
    """Not a letter is changed: its imports, `MemTracker(frame)`, 'cuda:0', on a card that is not there."""
    (seed,) = (shared / "seeds").glob("003_*.txt")
    text = seed.read_text(encoding="utf-8")
    begin = text.index("import torch\nimport inspect")
    lines = text[begin : text.index("gpu_tracker.track()", text.index("pretrained", begin))]
    models = ModuleType("models")
    models.vgg19 = lambda pretrained: article.vgg19()  # the weights' values need no download
    torchvision = ModuleType("torchvision")
    torchvision.models = models
    monkeypatch.setitem(sys.modules, "torchvision", torchvision)
    with memlens.simulate("T4"):
        exec(compile(lines + "gpu_tracker.track()\n", "article.py", "exec"), {"__name__": "__main__"})
    printed = capsys.readouterr().out
    second = printed[printed.rindex("At __main__ : line 10") :]
    assert rows(second, "+") == ARTICLE_ROWS
    told = re.search(r"on the card ([\d,.]+) = (.*)", second.replace(" MiB", ""))
    assert told is not None
    parts = [float(size.replace(",", "")) for size in re.findall(r"[\d,]+\.\d\d", told[2])]
    assert sum(parts) == pytest.approx(float(told[1].replace(",", "")), abs=0.05)
    for part in ("tensors", "rounded up to blocks", "cached, unused", "CUDA context", "other processes"):
        assert part in told[2]
