"""One rank of two under DistributedDataParallel on the CPU.

`python -m tests.support.ddp_rank RANK STORE` prints JSON.
"""

from __future__ import annotations

import json
import sys
from itertools import pairwise

import torch
from torch import nn

from tests.support.models_on_cpu import StorageCounter


def model() -> nn.Module:
    """25,541,576 bytes of parameters: a bucket of a first MiB and more, and one of the rest."""
    widths = (256, 512, 2048, 1024, 3000, 10)
    return nn.Sequential(*(nn.Linear(*pair) for pair in pairwise(widths)))


def train(views: bool) -> dict[str, object]:
    """Two steps: the bytes of parameters, all that is held after each, and the buckets that DDP reports."""
    with StorageCounter() as counter:
        inner = model()
        parameters = counter.bytes
        wrapped = nn.parallel.DistributedDataParallel(inner, gradient_as_bucket_view=views)
        held = []
        for _ in range(2):
            wrapped(torch.ones(4, 256)).sum().backward()
            held.append(counter.bytes)
        wrapped(torch.ones(4, 256))  # the reducer rebuilds its buckets, in the order in which gradients came
    reported = wrapped._get_ddp_logging_data()["rebuilt_bucket_sizes"]
    return {"parameters": parameters, "held": held, "buckets": [int(size) for size in reported.split(",")]}


if __name__ == "__main__":
    torch.set_num_threads(1)
    torch.distributed.init_process_group(
        "gloo", init_method=f"file://{sys.argv[2]}", rank=int(sys.argv[1]), world_size=2
    )
    found = [train(views) for views in (False, True)]
    torch.distributed.barrier()
    torch.distributed.destroy_process_group()
    print(json.dumps(found))
