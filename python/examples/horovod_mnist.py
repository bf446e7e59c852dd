"""Digits with Horovod's interface: sirtaki run -n 2 --horovod -- python horovod_mnist.py"""

import argparse
import itertools
import math

import horovod.torch as hvd
import torch
from mnist import Network, load, share_recognised
from torch.nn import functional
from torch.utils.data import DataLoader
from torch.utils.data.distributed import DistributedSampler

import sirtaki

parser = argparse.ArgumentParser()
parser.add_argument("--batch-size", type=int, default=64, help="images per step of a worker")
parser.add_argument("--lr", type=float, default=0.005, help="learning rate of one worker")
parser.add_argument("--epochs", type=int, default=1)
parser.add_argument("--steps", type=int, default=0, help="end after so many steps")
parser.add_argument("--dropout", type=float, default=0.25)
parser.add_argument("--seed", type=int, default=42)
arguments = parser.parse_args()

hvd.init()
torch.manual_seed(arguments.seed)

train = load("train")
sampler = DistributedSampler(train, num_replicas=hvd.size(), rank=hvd.rank(), seed=arguments.seed)
batches = DataLoader(train, arguments.batch_size, sampler=sampler, drop_last=True)

model = Network(arguments.dropout)
optimizer = torch.optim.SGD(model.parameters(), lr=arguments.lr * hvd.size(), momentum=0.9)
hvd.broadcast_parameters(model.state_dict(), root_rank=0)
hvd.broadcast_optimizer_state(optimizer, root_rank=0)
optimizer = hvd.DistributedOptimizer(optimizer, named_parameters=model.named_parameters())

sirtaki.describe(
    model="cnn",
    batch_per_worker=arguments.batch_size,
    lr=arguments.lr * hvd.size(),
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
            mean = hvd.allreduce(loss.detach(), name="loss").item()
            seen = step * arguments.batch_size * hvd.size()
            sirtaki.progress(step, steps, samples=seen, loss=mean)
            if hvd.rank() == 0:
                print(f"step {step} loss {mean:.6f}", flush=True)

test = load("t10k")
part = DistributedSampler(test, num_replicas=hvd.size(), rank=hvd.rank(), shuffle=False)
accuracy = hvd.allreduce(share_recognised(model, DataLoader(test, 500, sampler=part)), name="test")
sirtaki.progress(step, steps, test_accuracy=accuracy)
if hvd.rank() == 0:
    print(f"test accuracy {accuracy.item():.4f}")
