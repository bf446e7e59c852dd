"""A PyTorch DDP script as everybody writes it: it knows no launcher, only the environment."""

import os
import sys

import torch
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel


def main():
    dist.init_process_group("gloo")
    rank, size = dist.get_rank(), dist.get_world_size()
    torch.manual_seed(rank)  # DDP has to hand out the weights of rank 0.
    model = DistributedDataParallel(torch.nn.Linear(4, 1))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    generator = torch.Generator().manual_seed(1000 + rank)
    for _ in range(5):
        inputs = torch.randn(8, 4, generator=generator)
        loss = (model(inputs) - inputs.sum(dim=1, keepdim=True)).square().mean()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
    gradient = model.module.weight.grad.flatten().tolist()
    weights = model.module.weight.data.flatten().tolist()
    print(f"size {size} loss {loss.item()!r}")
    print(f"gradient {gradient} weights {weights}")
    dist.barrier()


main()
# Gloo's threads sometimes abort a process that takes its group down, in which nothing is ours.
sys.stdout.flush()
os._exit(0)
