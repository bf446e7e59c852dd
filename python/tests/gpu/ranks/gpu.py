"""What tests with a GPU share: the device of this rank, tensors, and what keeps it busy."""

import functools
import os

import torch

import sirtaki.torch as hvd

DEVICE = torch.device("cuda", hvd.local_rank() % torch.cuda.device_count())
LARGE = 3_000_001
STAGED = os.environ.get("SIRTAKI_GPU") == "staged"
"""Whether the host reduces: then whoever waits for a result waits for the GPU before it."""
FLOATS = [torch.float16, torch.bfloat16, torch.float32, torch.float64]
INTEGERS = [torch.int8, torch.uint8, torch.int32, torch.int64]
TYPES = [*FLOATS, *INTEGERS, torch.bool]


def example(rank, shape=(33,), dtype=torch.float32):
    """Small whole numbers that all ranks can compute for each; sums are exact in all types."""
    count = torch.Size(shape).numel()
    values = torch.arange(count, device=DEVICE) % 5 + rank + 1
    return (
        values.reshape(shape).to(dtype) if dtype != torch.bool else values.reshape(shape) % 2 == 0
    )


def examples(shape=(33,), dtype=torch.float32):
    return torch.stack([example(rank, shape, dtype) for rank in range(hvd.size())])


def slow():
    """Work that keeps the current stream busy for a while."""
    matrix = torch.ones(4096, 4096, device=DEVICE)
    for _ in range(20):
        matrix = matrix @ matrix * 1e-4
    return matrix


@functools.cache
def _cycles_of_a_millisecond():
    begin, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))
    torch.cuda._sleep(1000)
    begin.record()
    torch.cuda._sleep(20_000_000)
    end.record()
    end.synchronize()
    return 20_000_000 / begin.elapsed_time(end)


def busy(milliseconds):
    """Keeps the current stream busy for so long; gives the event at its end."""
    torch.cuda._sleep(int(milliseconds * _cycles_of_a_millisecond()))
    done = torch.cuda.Event()
    done.record()
    return done
