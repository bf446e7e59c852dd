"""Digits with DistributedDataParallel: sirtaki run -n 2 -- python ddp_mnist.py, or torchrun."""

import argparse
import itertools
import math

import torch
import torch.distributed as dist
from mnist import Network, load, share_recognised
from torch.nn import functional
from torch.nn.parallel import DistributedDataParallel
from torch.utils.data import DataLoader
from torch.utils.data.distributed import DistributedSampler

import sirtaki.torch  # knows the back end "sirtaki"

parser = argparse.ArgumentParser()
parser.add_argument("--batch-size", type=int, default=64, help="images per step of a worker")
parser.add_argument("--lr", type=float, default=0.005, help="learning rate of one worker")
parser.add_argument("--epochs", type=int, default=1)
parser.add_argument("--steps", type=int, default=0, help="end after so many steps")
parser.add_argument("--dropout", type=float, default=0.25)
parser.add_argument("--seed", type=int, default=42)
arguments = parser.parse_args()

dist.init_process_group("sirtaki")
rank, size = dist.get_rank(), dist.get_world_size()
torch.manual_seed(arguments.seed)

train = load("train")
sampler = DistributedSampler(train, seed=arguments.seed)
batches = DataLoader(train, arguments.batch_size, sampler=sampler, drop_last=True)

model = DistributedDataParallel(Network(arguments.dropout))
optimizer = torch.optim.SGD(model.parameters(), lr=arguments.lr * size, momentum=0.9)


def mean(value: torch.Tensor) -> float:
    """Of all workers."""
    dist.all_reduce(value)
    return value.item() / size


sirtaki.describe(
    model="cnn",
    batch_per_worker=arguments.batch_size,
    lr=arguments.lr * size,
    epochs=arguments.epochs,
    seed=arguments.seed,
)
step, steps = 0, arguments.steps or arguments.epochs * len(batches)
for epoch in range(math.ceil(steps / len(batches))):
    sampler.set_epoch(epoch)
    model.train()
    for images, labels in itertools.islice(batches, steps - step):
        optimizer.zero_grad()
        loss = functional.cross_entropy(model(images), labels)
        loss.backward()
        optimizer.step()
        step += 1
        if step % 10 == 0:
            shown = mean(loss.detach().clone())
            seen = step * arguments.batch_size * size
            sirtaki.progress(step, steps, samples=seen, loss=shown)
            if rank == 0:
                print(f"step {step} loss {shown:.6f}", flush=True)

test = load("t10k")
part = DistributedSampler(test, shuffle=False)
accuracy = mean(share_recognised(model.module, DataLoader(test, 500, sampler=part)))
sirtaki.progress(step, steps, test_accuracy=accuracy)
if rank == 0:
    print(f"test accuracy {accuracy:.4f}")
dist.destroy_process_group()
