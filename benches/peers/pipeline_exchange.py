"""One rank of the pipeline in torch_pipeline.py, over the back end in BACKEND.

Arguments: bytes of activations, steps. RANK, WORLD_SIZE and INIT_METHOD say who this is and where ranks meet. Rank 0 prints
the median of the seconds that the slowest rank needs for a step.
"""

import os
import sys
import time

import torch
import torch.distributed as dist

WARM_UP = 3


def main():
    size, steps = map(int, sys.argv[1:])
    rank, ranks, backend = int(os.environ["RANK"]), int(os.environ["WORLD_SIZE"]), os.environ["BACKEND"]
    torch.set_num_threads(1)
    if backend == "sirtaki":
        import sirtaki.torch  # noqa: F401
    dist.init_process_group(backend, init_method=os.environ["INIT_METHOD"], rank=rank, world_size=ranks)
    from torch_pipeline import pipeline

    step = pipeline(size)
    times = torch.zeros(WARM_UP + steps, dtype=torch.float64)
    for number in range(WARM_UP + steps):
        dist.barrier()
        begun = time.perf_counter()
        step()
        times[number] = time.perf_counter() - begun
    dist.all_reduce(times, op=dist.ReduceOp.MAX)
    if rank == 0:
        print(times[WARM_UP:].median().item())
    dist.destroy_process_group()


if __name__ == "__main__":
    sys.exit(main())
