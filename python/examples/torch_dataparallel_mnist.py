"""Digits with DataParallel: sirtaki run -n 1 -- python torch_dataparallel_mnist.py"""

import argparse
import itertools
import math

import torch
from mnist import Network, load, share_recognised
from torch.nn import functional
from torch.utils.data import DataLoader

import sirtaki
import sirtaki.torch as together

parser = argparse.ArgumentParser()
parser.add_argument("--devices", type=int, default=torch.cuda.device_count() or 2)
parser.add_argument("--batch-size", type=int, default=64, help="images per step of a device")
parser.add_argument("--lr", type=float, default=0.005, help="learning rate of one device")
parser.add_argument("--epochs", type=int, default=1)
parser.add_argument("--steps", type=int, default=0, help="end after so many steps")
parser.add_argument("--dropout", type=float, default=0.25)
parser.add_argument("--seed", type=int, default=42)
arguments = parser.parse_args()

together.init()
torch.manual_seed(arguments.seed)
home = torch.device("cuda:0" if torch.cuda.is_available() else "cpu")
network = Network(arguments.dropout).to(home)
# With GPUs, `torch.nn.DataParallel` is the same; this one also takes a CPU several times.
model = together.DataParallel(network, device_ids=range(arguments.devices))
optimizer = torch.optim.SGD(model.parameters(), lr=arguments.lr * arguments.devices, momentum=0.9)
order = torch.Generator().manual_seed(arguments.seed)
size = arguments.batch_size * arguments.devices
batches = DataLoader(load("train"), size, shuffle=True, generator=order, drop_last=True)

sirtaki.describe(
    model="cnn",
    global_batch=size,
    lr=arguments.lr * arguments.devices,
    epochs=arguments.epochs,
    seed=arguments.seed,
)
step, steps = 0, arguments.steps or arguments.epochs * len(batches)
for _ in range(math.ceil(steps / len(batches))):
    model.train()
    for images, labels in itertools.islice(batches, steps - step):
        optimizer.zero_grad()
        loss = functional.cross_entropy(model(images), labels.to(home))
        loss.backward()
        optimizer.step()
        step += 1
        if step % 10 == 0:
            value = loss.item()
            sirtaki.progress(step, steps, samples=step * size, loss=value)
            print(f"step {step} loss {value:.6f}", flush=True)

accuracy = share_recognised(model, DataLoader(load("t10k"), 500)).item()
sirtaki.progress(step, steps, test_accuracy=accuracy)
print(f"test accuracy {accuracy:.4f}")
