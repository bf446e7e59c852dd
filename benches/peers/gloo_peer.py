"""PyTorch's Gloo as a benchmark peer.

Rank, size and rendezvous come from RANK, WORLD_SIZE, MASTER_ADDR and MASTER_PORT, or from INIT_METHOD (such as
file:///some/new/file); Gloo itself reads GLOO_SOCKET_IFNAME.
"""

import os
import sys

import torch
import torch.distributed as dist

from common import serve, timed


def measure(count, iterations):
    data = torch.ones(count, dtype=torch.float32)
    dist.barrier()
    return timed(lambda: dist.all_reduce(data), iterations)


def main():
    rank, size = int(os.environ["RANK"]), int(os.environ["WORLD_SIZE"])
    torch.set_num_threads(1)
    method = os.environ.get("INIT_METHOD", "env://")
    dist.init_process_group("gloo", init_method=method, rank=rank, world_size=size)
    serve("gloo", rank, size, measure)
    dist.destroy_process_group()


if __name__ == "__main__":
    sys.exit(main())
