"""PyTorch's Gloo reducing a training step, as a benchmark peer.

STEP_FORM says how: `works` submits every tensor by itself and waits for all of them at the end,
`buckets` copies neighbouring tensors into flat buffers of at most 25 MB first and back afterwards.
Gloo needs the same order on every rank, so nothing is shuffled here. Rendezvous as in
gloo_peer.py.
"""

import os
import sys

import torch
import torch.distributed as dist

from common import serve, split, timed

BUCKET = 25 * 1000 * 1000 // 4


def in_works(tensors):
    for work in [dist.all_reduce(tensor, async_op=True) for tensor in tensors]:
        work.wait()


def in_buckets(tensors):
    buckets, filled = [[]], 0
    for tensor in tensors:
        if filled and filled + tensor.numel() > BUCKET:
            buckets.append([])
            filled = 0
        buckets[-1].append(tensor)
        filled += tensor.numel()
    flying = []
    for bucket in buckets:
        flat = torch.cat(bucket)
        flying.append((bucket, flat, dist.all_reduce(flat, async_op=True)))
    for bucket, flat, work in flying:
        work.wait()
        torch._foreach_copy_(bucket, list(flat.split([tensor.numel() for tensor in bucket])))


def main():
    rank, size = int(os.environ["RANK"]), int(os.environ["WORLD_SIZE"])
    torch.set_num_threads(1)
    form = {"works": in_works, "buckets": in_buckets}[os.environ["STEP_FORM"]]
    method = os.environ.get("INIT_METHOD", "env://")
    dist.init_process_group("gloo", init_method=method, rank=rank, world_size=size)

    def measure(count, iterations):
        tensors = split(torch.ones(count, dtype=torch.float32))
        dist.barrier()
        return timed(lambda: form(tensors), iterations)

    serve("gloo " + os.environ["STEP_FORM"], rank, size, measure)
    dist.destroy_process_group()


if __name__ == "__main__":
    sys.exit(main())
