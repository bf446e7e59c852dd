"""One rank of PyTorch's own pipeline of equal layers, with its 1F1B schedule; one process without a pipeline.

Arguments: micro-batches, layers, width, samples of a micro-batch, steps. RANK, WORLD_SIZE and INIT_METHOD say who this is
and where ranks meet, BACKEND by what they exchange activations. Rank 0 prints the median of the seconds that the slowest
rank needs for a step.
"""

import os
import sys
import time

import torch
import torch.distributed as dist
from torch import nn

WARM_UP = 2


class Stage(nn.Sequential):
    """Computes gradients of its input wherever it is, so that the first stage does what the others do."""

    def forward(self, rows):
        return super().forward(rows if rows.requires_grad else rows.detach().requires_grad_())


def stage(layers, width):
    return Stage(*(part for _ in range(layers) for part in (nn.Linear(width, width), nn.ReLU())))


def mean(output, _):
    return output.mean()


def one_process(module, rows, micros):
    def step():
        for part in rows.chunk(micros):
            (mean(module(part), None) / micros).backward()

    return step


def pipeline(module, rank, ranks, rows, micros):
    from torch.distributed.pipelining import PipelineStage, Schedule1F1B

    schedule = Schedule1F1B(PipelineStage(module, rank, ranks, torch.device("cpu")), micros, loss_fn=mean)
    if rank == 0:
        return lambda: schedule.step(rows)
    if rank == ranks - 1:
        return lambda: schedule.step(target=rows)
    return schedule.step


def main():
    micros, layers, width, samples, steps = map(int, sys.argv[1:])
    rank, ranks = int(os.environ["RANK"]), int(os.environ["WORLD_SIZE"])
    torch.set_num_threads(1)
    dist.init_process_group(os.environ["BACKEND"], init_method=os.environ["INIT_METHOD"], rank=rank, world_size=ranks)
    rows, module = torch.ones(micros * samples, width), stage(layers // ranks, width)
    optimizer = torch.optim.SGD(module.parameters(), lr=0.001)
    passes = pipeline(module, rank, ranks, rows, micros) if ranks > 1 else one_process(module, rows, micros)
    times = torch.zeros(WARM_UP + steps, dtype=torch.float64)
    for number in range(WARM_UP + steps):
        dist.barrier()
        begun = time.perf_counter()
        passes()
        optimizer.step()
        optimizer.zero_grad()
        times[number] = time.perf_counter() - begun
    dist.all_reduce(times, op=dist.ReduceOp.MAX)
    if rank == 0:
        print(times[WARM_UP:].median().item())
    dist.destroy_process_group()


if __name__ == "__main__":
    sys.exit(main())
