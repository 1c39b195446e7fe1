"""What a user writes. Where mypy must object, the line ends in `# error: CODE`; it is never run."""

from __future__ import annotations

import asyncio
from typing import assert_type

import torch

import memlens

model = torch.nn.Linear(4, 2)

# what is right
prediction = memlens.predict(model, batch_size=3, gpu="RTX 4090", optimizer="sgd")
assert_type(prediction, memlens.Prediction)
assert_type(prediction.fits, bool | None)
assert_type(prediction.peak.allocated_bytes, int)
assert_type(prediction.breakdown[memlens.Category.ACTIVATION], int)
assert_type(prediction.trace, memlens.Trace)
assert_type(memlens.load("run.memlens"), memlens.Trace)
assert_type(memlens.max_batch_size(model, gpu="T4", margin="5%", optimizer="sgd"), int)
assert_type(memlens.advise(model, batch_size=3, gpu="T4", seq_len=128).base, memlens.Prediction)
memlens.mark("epoch")
with memlens.simulate("T4") as sim:
    assert_type(sim.trace, memlens.Trace)


@memlens.simulate("T4")
def step(rows: int) -> torch.Tensor:
    return torch.ones(rows, device="cuda")


assert_type(step(3), torch.Tensor)
step("3")  # error: arg-type
with memlens.on_oom(callback=lambda failure: print(failure.reserved_bytes)) as recorder:
    recorder.close()
try:
    memlens.predict_script("train.py")
except memlens.MemlensError as problem:
    print(problem)


@memlens.profile
def bare(rows: int, *, name: str = "") -> list[str]:
    return [name] * rows


@memlens.profile(precision=3, gpu=True)
def called(rows: int) -> int:
    return rows


@memlens.profile()
async def later(rows: int) -> int:
    return rows


@memlens.profile
class Loader:
    @memlens.profile
    @staticmethod
    def read(path: str) -> bytes:
        return path.encode()

    @memlens.profile
    @classmethod
    def make(cls) -> Loader:
        return cls()


assert_type(bare(3, name="a"), list[str])
assert_type(called(3), int)
assert_type(asyncio.run(later(3)), int)
assert_type(Loader.read("a"), bytes)
assert_type(Loader(), Loader)
assert_type(Loader.make(), Loader)

# what is wrong
memlens.predict(model, batchsize=3)  # error: call-arg
memlens.predict(model).foo  # error: attr-defined
memlens.predict(model, batch_size="3")  # error: arg-type
memlens.predict()  # error: call-arg
memlens.perdict(model)  # error: attr-defined
memlens.advise(model, batchsize=3)  # error: call-arg
memlens.max_batch_size(model, gpus="T4")  # error: call-arg
memlens.Category.ACTIVATIONS  # error: attr-defined
memlens.load(3)  # error: arg-type
memlens.mark()  # error: call-arg
memlens.simulate(card="T4")  # error: call-arg
memlens.advise_script(memlens.Script("train.py"), gpus="T4")  # error: call-arg
memlens.LineProfiler(bare, back_end="rss")  # error: call-arg
memlens.MemTracker(colour=True)  # error: call-arg
memlens.on_oom(folders=".")  # error: call-arg
memlens.memory_usage(-1, intervall=1)  # error: call-arg
memlens.profile("train.py")  # error: call-overload
memlens.profile(precise=3)  # error: call-overload
bare("3")  # error: arg-type
called(rows=3, name="a")  # error: call-arg
bare(3) + 1  # error: operator
