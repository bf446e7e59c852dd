"""PyTorch DDP over Gloo training what `sirtaki train` trains, with the same options and the same report.

Same networks, initialisation (PyTorch's default is Burn's), batches, optimizer, learning rates, normalised images and
tests; one thread per rank. RANK and WORLD_SIZE as `torchrun` sets them; without them a single process, without DDP.
"""

import argparse
import gzip
import json
import math
import os
import pathlib
import sys
import tempfile
import time

import numpy
import torch
import torch.distributed as dist
from torch import nn

WARM_UP = 0.1
TEST_BATCH = 500


def arguments():
    parser = argparse.ArgumentParser()
    parser.add_argument("--model", choices=["lenet", "cnn"], default="lenet")
    parser.add_argument("--data", type=pathlib.Path, default="data/mnist")
    parser.add_argument("--batch-size", type=int, default=64)
    parser.add_argument("--epochs", type=int, default=4)
    parser.add_argument("--max-steps", type=int)
    parser.add_argument("--lr", type=float, default=0.01)
    parser.add_argument("--seed", type=int, default=42)
    parser.add_argument("--target-accuracy", type=float, default=0.985)
    parser.add_argument("--json", type=pathlib.Path, required=True)
    return parser.parse_args()


def read(path, header):
    with gzip.open(path) as file:
        return numpy.frombuffer(file.read()[header:], dtype=numpy.uint8)


def load(folder, name):
    images = read(folder / f"{name}-images-idx3-ubyte.gz", 16).reshape(-1, 1, 28, 28)
    labels = read(folder / f"{name}-labels-idx1-ubyte.gz", 8)
    images = (torch.from_numpy(images.astype(numpy.float32) / 255) - 0.1307) / 0.3081
    return images, torch.from_numpy(labels.astype(numpy.int64))


def lenet():
    features = [nn.Conv2d(1, 6, 5), nn.ReLU(), nn.MaxPool2d(2), nn.Conv2d(6, 16, 5), nn.ReLU(), nn.MaxPool2d(2)]
    return nn.Sequential(
        *features, nn.Flatten(), nn.Linear(256, 120), nn.ReLU(), nn.Linear(120, 84), nn.ReLU(), nn.Linear(84, 10)
    )


def cnn():
    features = [nn.Conv2d(1, 32, 3), nn.ReLU(), nn.Conv2d(32, 64, 3), nn.ReLU(), nn.MaxPool2d(2), nn.Dropout(0.25)]
    return nn.Sequential(
        *features, nn.Flatten(), nn.Linear(9216, 128), nn.ReLU(), nn.Dropout(0.5), nn.Linear(128, 10)
    )


class Peer:
    def __init__(self, options):
        self.options = options
        self.rank, self.size = int(os.environ.get("RANK", 0)), int(os.environ.get("WORLD_SIZE", 1))
        if self.size > 1:
            dist.init_process_group("gloo")
        self.train, self.test = load(options.data, "train"), load(options.data, "t10k")
        torch.manual_seed(options.seed)
        model = {"lenet": lenet, "cnn": cnn}[options.model]()
        # Dropout differs between ranks.
        torch.manual_seed(options.seed * self.size + self.rank)
        self.model = nn.parallel.DistributedDataParallel(model) if self.size > 1 else model
        self.optimizer = torch.optim.SGD(self.model.parameters(), lr=options.lr, momentum=0.9)
        self.together = options.batch_size * self.size
        self.steps = math.ceil(len(self.train[1]) / self.together)
        self.step, self.seen, self.training, self.passed = 0, 0, 0.0, []

    def total(self, values):
        values = torch.tensor(values, dtype=torch.float64)
        if self.size > 1:
            dist.all_reduce(values)
        return values.tolist()

    def rate(self):
        epoch = self.step / self.steps
        if epoch < WARM_UP:
            return self.options.lr * (1 + (self.size - 1) * epoch / WARM_UP)
        part = min((epoch - WARM_UP) / (self.options.epochs - WARM_UP), 1)
        return self.options.lr * self.size * (1 + math.cos(math.pi * part)) / 2

    def is_done(self):
        return self.options.max_steps is not None and self.step >= self.options.max_steps

    def epoch(self, number):
        """Mean loss and images per second."""
        order = torch.randperm(len(self.train[1]), generator=torch.Generator().manual_seed(self.options.seed + number))
        begun, loss_sum, seen = time.perf_counter(), 0.0, 0
        self.model.train()
        for together in order.split(self.together):
            if self.is_done():
                break
            mine = together[self.rank :: self.size]
            loss = nn.functional.cross_entropy(self.model(self.train[0][mine]), self.train[1][mine])
            for group in self.optimizer.param_groups:
                group["lr"] = self.rate()
            self.optimizer.zero_grad()
            (loss * (len(mine) * self.size / len(together))).backward()
            self.optimizer.step()
            loss_sum += loss.item() * len(mine)
            seen += len(together)
            self.step += 1
        if self.size > 1:
            dist.barrier()
        seconds = time.perf_counter() - begun
        self.training += seconds
        self.seen += seen
        return self.total([loss_sum])[0] / max(seen, 1), seen / seconds

    def examine(self):
        """Mean loss and share of right answers over all test images."""
        images, labels = (part[self.rank :: self.size] for part in self.test)
        found = [0.0, 0.0]
        self.model.eval()
        # Ranks have different numbers of batches here: nothing may be exchanged.
        model = self.model.module if self.size > 1 else self.model
        with torch.no_grad():
            for image, label in zip(images.split(TEST_BATCH), labels.split(TEST_BATCH)):
                answers = model(image)
                found[0] += nn.functional.cross_entropy(answers, label, reduction="sum").item()
                found[1] += (answers.argmax(1) == label).sum().item()
        return [value / len(self.test[1]) for value in self.total(found)]

    def save(self, folder):
        """As `sirtaki train` does after each epoch."""
        if self.rank == 0:
            torch.save([self.model.state_dict(), self.optimizer.state_dict()], pathlib.Path(folder) / "checkpoint")

    def run(self):
        if self.size > 1:
            dist.barrier()
        begun = time.perf_counter()
        with tempfile.TemporaryDirectory() as folder:
            for number in range(self.options.epochs):
                loss, rate = self.epoch(number)
                test_loss, accuracy = self.examine()
                passed = {"epoch": number + 1, "seconds": time.perf_counter() - begun, "train_loss": loss}
                passed |= {"test_loss": test_loss, "test_accuracy": accuracy, "samples_per_second": rate}
                self.passed.append(passed)
                self.save(folder)
                if self.is_done():
                    break
        return time.perf_counter() - begun

    def report(self, seconds):
        with open("/proc/self/status") as status:
            memory = next(int(line.split()[1]) * 1024 for line in status if line.startswith("VmHWM"))
        memories = self.total([memory * (rank == self.rank) for rank in range(self.size)])
        options, target = self.options, self.options.target_accuracy
        reached = [epoch["seconds"] for epoch in self.passed if epoch["test_accuracy"] >= target]
        return {
            "model": options.model,
            "workers": self.size,
            "batch_per_worker": options.batch_size,
            "global_batch": self.together,
            "epochs": self.passed,
            "test_accuracy": self.passed[-1]["test_accuracy"],
            "target_accuracy": target,
            "seconds_to_target": reached[0] if reached else None,
            "seconds": seconds,
            "samples_per_second": self.seen / self.training,
            "samples_per_second_one_worker": None,
            "speedup": None,
            # DDP does not say how long it waits.
            "communication_share": None,
            "peak_memory": [int(memory) for memory in memories],
        }


def main():
    options = arguments()
    torch.set_num_threads(1)
    peer = Peer(options)
    report = peer.report(peer.run())
    if peer.rank == 0:
        options.json.write_text(json.dumps(report))
    if peer.size > 1:
        dist.destroy_process_group()


if __name__ == "__main__":
    sys.exit(main())
