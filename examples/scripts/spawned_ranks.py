"""A process for each card, started by the script itself: DistributedDataParallel by `mp.spawn`.

memlens predict examples/scripts/spawned_ranks.py --gpu T4
"""

import os

import torch
import torch.distributed as dist
import torch.multiprocessing as mp
from torch import nn
from torch.nn.parallel import DistributedDataParallel
from torch.utils.data import DataLoader, TensorDataset
from torch.utils.data.distributed import DistributedSampler


def train(rank, ranks):
    os.environ.setdefault("MASTER_ADDR", "127.0.0.1")
    os.environ.setdefault("MASTER_PORT", "29501")
    dist.init_process_group("nccl", rank=rank, world_size=ranks)
    torch.cuda.set_device(rank)
    data = TensorDataset(torch.randn(4096, 512), torch.randint(0, 10, (4096,)))
    sampler = DistributedSampler(data, num_replicas=ranks, rank=rank)
    loader = DataLoader(data, batch_size=64, sampler=sampler, num_workers=2, pin_memory=True)
    model = nn.Sequential(nn.Linear(512, 2048), nn.SyncBatchNorm(2048), nn.ReLU(), nn.Linear(2048, 10)).cuda(
        rank
    )
    model = DistributedDataParallel(model, device_ids=[rank])
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9)
    for epoch in range(10):
        sampler.set_epoch(epoch)
        for inputs, labels in loader:
            outputs = model(inputs.cuda(rank, non_blocking=True))
            loss = nn.functional.cross_entropy(outputs, labels.cuda(rank, non_blocking=True))
            optimizer.zero_grad(set_to_none=True)
            loss.backward()
            optimizer.step()
            mean = loss.detach().clone()
            dist.all_reduce(mean)
        if rank == 0:
            print(epoch, (mean / ranks).item())
        dist.barrier()
    dist.destroy_process_group()


if __name__ == "__main__":
    cards = torch.cuda.device_count()
    mp.spawn(train, args=(cards,), nprocs=cards)
