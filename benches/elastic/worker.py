"""A worker of ``cargo xtask bench elastic`` with PyTorch: LeNet-5, a commit after every step.

It says when it begins and when it has done its first step of a round, by the clock that all
processes of this machine share.
"""

import contextlib
import time

import torch
import torch.nn.functional as functional
from torch import nn

import sirtaki
import sirtaki.torch as hvd
from sirtaki._core import job


def say(*words: object) -> None:
    """One line at once."""
    print(*words, flush=True)


class LeNet(nn.Sequential):
    """61,706 weights."""

    def __init__(self) -> None:
        super().__init__(
            *(nn.Conv2d(1, 6, 5, padding=2), nn.ReLU(), nn.MaxPool2d(2)),
            *(nn.Conv2d(6, 16, 5), nn.ReLU(), nn.MaxPool2d(2), nn.Flatten()),
            *(nn.Linear(400, 120), nn.ReLU(), nn.Linear(120, 84), nn.ReLU(), nn.Linear(84, 10)),
        )


say("init", time.monotonic())
torch.set_num_threads(1)
hvd.init()
model = LeNet()
optimizer = torch.optim.SGD(model.parameters(), lr=0.01, momentum=0.9)
optimizer = hvd.DistributedOptimizer(optimizer, model.named_parameters())
images, labels = torch.zeros(16, 1, 28, 28), torch.zeros(16, dtype=torch.long)


@hvd.elastic.run
def train(state: hvd.elastic.TorchState) -> None:
    """Until it is ended."""
    first = True
    while True:
        optimizer.zero_grad()
        functional.cross_entropy(model(images), labels).backward()
        optimizer.step()
        state.commit()
        if first:
            say("first", job.round_number(), time.monotonic())
            first = False


with contextlib.suppress(sirtaki.JobOver):
    train(hvd.elastic.TorchState(model, optimizer))
