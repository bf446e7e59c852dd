"""Horovod reducing a training step, as a benchmark peer, over Gloo or MPI as its launcher says.

Every tensor is submitted by name, in an order that differs from rank to rank and from step to
step, and all are waited for at the end.
"""

import random
import sys

import horovod.torch as hvd
import torch

from common import serve, split, timed


def measure(count, iterations):
    tensors = split(torch.ones(count, dtype=torch.float32))
    names = [f"{count} in {len(tensors)}: {index}" for index in range(len(tensors))]
    order = list(range(len(tensors)))

    def step():
        random.shuffle(order)
        handles = [hvd.allreduce_async_(tensors[index], name=names[index], op=hvd.Sum) for index in order]
        for handle in handles:
            hvd.synchronize(handle)

    hvd.barrier()
    return timed(step, iterations)


def main():
    torch.set_num_threads(1)
    hvd.init()
    random.seed(hvd.rank())
    serve("horovod", hvd.rank(), hvd.size(), measure)
    hvd.shutdown()


if __name__ == "__main__":
    sys.exit(main())
