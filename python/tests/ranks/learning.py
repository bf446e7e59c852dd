"""What the tests of training share: a small network, its batches, and this rank's part of them."""

import torch
from torch import nn

import sirtaki.torch as hvd

ROWS = 4


def network():
    torch.manual_seed(5)
    return nn.Sequential(
        nn.Linear(6, 16), nn.Tanh(), nn.Linear(16, 16), nn.ReLU(), nn.Linear(16, 3)
    )


def batches(steps):
    generator = torch.Generator().manual_seed(6)
    for _ in range(steps):
        rows = ROWS * hvd.size()
        yield torch.randn(rows, 6, generator=generator), torch.randn(rows, 3, generator=generator)


def mine(batch, rank=None):
    rank = hvd.rank() if rank is None else rank
    return [tensor[ROWS * rank : ROWS * (rank + 1)] for tensor in batch]


def loss(model, batch):
    return nn.functional.mse_loss(model(batch[0]), batch[1])
