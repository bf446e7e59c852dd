"""PyTorch's Gloo reducing a training step, as a benchmark peer.

STEP_FORM says how: `works` hands in every tensor by itself and waits for all of them at the end, `buckets` copies
neighbouring tensors into flat buffers of at most 25 MB first and back afterwards. An order for as many bytes as
ResNet-50 has parameters is a step; any other order is one tensor. Gloo needs the same order on every rank, so nothing
is shuffled here. Rendezvous as in gloo_peer.py.
"""

import json
import os
import socket
import sys
import time

import torch
import torch.distributed as dist

WARM_UP = 2
BUCKET = 25 * 1000 * 1000 // 4


def convolution(before, after, side):
    return [before * after * side * side, after, after]


def resnet():
    """Numbers per tensor: 161 tensors, 25,557,032 numbers."""
    sizes = convolution(3, 64, 7)
    channels = 64
    for stage, blocks in enumerate([3, 4, 6, 3]):
        width = 64 << stage
        for block in range(blocks):
            sizes += convolution(channels, width, 1)
            sizes += convolution(width, width, 3)
            sizes += convolution(width, 4 * width, 1)
            if block == 0:
                sizes += convolution(channels, 4 * width, 1)
            channels = 4 * width
    return sizes + [channels * 1000, 1000]


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


def measure(count, iterations, form):
    sizes = resnet()
    data = torch.ones(count, dtype=torch.float32)
    tensors = list(data.split(sizes)) if count == sum(sizes) else [data]
    dist.barrier()
    micros = []
    for iteration in range(WARM_UP + iterations):
        start = time.perf_counter_ns()
        form(tensors)
        if iteration >= WARM_UP:
            micros.append((time.perf_counter_ns() - start) / 1000)
    return micros


def main():
    rank, size = int(os.environ["RANK"]), int(os.environ["WORLD_SIZE"])
    torch.set_num_threads(1)
    form = {"works": in_works, "buckets": in_buckets}[os.environ["STEP_FORM"]]
    method = os.environ.get("INIT_METHOD", "env://")
    dist.init_process_group("gloo", init_method=method, rank=rank, world_size=size)
    with socket.socket(socket.AF_UNIX) as connection:
        connection.connect(os.environ["SIRTAKI_BENCH_SOCKET"])
        lines = connection.makefile("rw")

        def say(line):
            lines.write(json.dumps(line) + "\n")
            lines.flush()

        say({"peer": "gloo " + os.environ["STEP_FORM"], "rank": rank, "size": size})
        for line in lines:
            order = json.loads(line)
            if order.get("end"):
                break
            say({"micros": measure(order["bytes"] // 4, order["iterations"], form)})
    dist.destroy_process_group()


if __name__ == "__main__":
    sys.exit(main())
