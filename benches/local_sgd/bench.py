"""Samples and bytes that local SGD and parameter servers need to an accuracy, beside data parallelism.

LeNet on MNIST, tested with weights that all ranks have in common after every 5,000 samples until 98.5 % of the test images are
recognised. All ways take the same samples in the same order, with the same rate. Shown are medians over the seeds; the
figures of local SGD do not depend on how fast the machine is, those of servers depend on how far ranks get apart. Called by
`cargo xtask bench local-sgd` and `cargo xtask bench server`; the arguments are `local` or `server`, the number of seeds, and the
accuracy if it is another one.
"""

import statistics
import sys

import torch
from torch import nn
from torch.nn import functional

import sirtaki.torch as hvd

sys.path.insert(0, "python/examples")
from digits import load  # noqa: E402

BATCH, RATE, ENOUGH, BETWEEN_TESTS, EPOCHS = 32, 0.02, 0.985, 5_000, 8
BASE = "data parallelism"
WAYS = {
    "local": {
        BASE: None,
        "local, every 8": {"every": 8},
        "every 8, 8 bits": {"every": 8, "wire": "int8"},
        "every 8 after 400": {"every": 8, "after": 400},
        "every 32, nesterov": {
            "every": 32,
            "outer": lambda w: torch.optim.SGD(w, 0.7, 0.9, nesterov=True),
        },
    },
    "server": {
        BASE: None,
        "server, in step": {"delay": 0},
        "server, k = 4": {"delay": 4},
        "asynchronous": {"delay": None},
    },
}
GOALS = {"local, every 8": (1.1, 1 / 8), "server, k = 4": (1.1, None), "asynchronous": (1.25, None)}
"""At most so many times the samples, with so many times the bytes."""


def network():
    return nn.Sequential(
        nn.Conv2d(1, 6, 5), nn.ReLU(), nn.MaxPool2d(2), nn.Conv2d(6, 16, 5), nn.ReLU(), nn.MaxPool2d(2),
        nn.Flatten(), nn.Linear(256, 120), nn.ReLU(), nn.Linear(120, 84), nn.ReLU(), nn.Linear(84, 10),
    )  # fmt: skip


def digits(part):
    images, labels = load(part)
    return torch.from_numpy(images).permute(0, 3, 1, 2).contiguous(), torch.from_numpy(labels).long()


def share_recognised(model, images, labels):
    """Of the test images, each rank takes its part."""
    with torch.no_grad():
        mine = slice(hvd.rank(), None, hvd.size())
        right = (model(images[mine]).argmax(1) == labels[mine]).sum()
    return hvd.allreduce(right, op=hvd.Sum, name="right").item() / len(labels)


def bytes_per_exchange(model, options):
    size = {"int8": 1 + 4 / 256}.get(options.get("wire"), 4)
    return size * sum(p.numel() for p in model.parameters())


def make_optimizer(model, options):
    if "delay" in options:
        return hvd.ServerOptimizer(model, "sgd", lr=RATE, momentum=0.9, **options)
    optimizer = torch.optim.SGD(model.parameters(), lr=RATE, momentum=0.9)
    if "every" in options:
        return hvd.LocalSGD(optimizer, **options)
    return hvd.DistributedOptimizer(optimizer, model.named_parameters())


def train(seed, options, train_set, test_set, enough):
    """Samples of all ranks until there were enough, and the bytes of weights or gradients handed in per rank."""
    options = options or {}
    torch.manual_seed(seed)
    model = network()
    optimizer = make_optimizer(model, options)
    every, after = options.get("every", 1), options.get("after", 0)
    images, labels = train_set
    samples = exchanges = steps = tested = 0
    shuffled = torch.Generator().manual_seed(seed)
    for _ in range(EPOCHS):
        for batch in torch.randperm(len(labels), generator=shuffled).split(BATCH * hvd.size()):
            mine = batch[hvd.rank() :: hvd.size()]
            optimizer.zero_grad()
            functional.cross_entropy(model(images[mine]), labels[mine]).backward()
            optimizer.step()
            samples, steps = samples + len(batch), steps + 1
            exchanges += steps <= after or (steps - after) % every == 0
            # Tests come between windows, so that they do not add to them.
            if samples - tested >= BETWEEN_TESTS and (steps - after) % every == 0:
                tested = samples
                if "delay" in options:
                    optimizer.settle()
                if share_recognised(model, *test_set) >= enough:
                    return samples, exchanges * bytes_per_exchange(model, options)
    return float("inf"), exchanges * bytes_per_exchange(model, options)


def main():
    which, seeds, enough = [*sys.argv[1:], *["local", "5", str(ENOUGH)][len(sys.argv) - 1 :]]
    ways, seeds, enough = WAYS[which], int(seeds), float(enough)
    torch.set_num_threads(1)
    hvd.init()
    train_set, test_set = digits("train"), digits("t10k")
    needed = {way: [] for way in ways}
    for seed in range(seeds):
        for way, options in ways.items():
            needed[way].append(train(seed, options, train_set, test_set, enough))
            if hvd.rank() == 0:
                print(f"seed {seed}: {way}: {needed[way][-1][0]:,} samples", flush=True)
    if hvd.rank() > 0:
        return
    medians = {way: [statistics.median(column) for column in zip(*runs)] for way, runs in needed.items()}
    base = medians[BASE]
    print(f"\nLeNet to {enough:.1%}, {hvd.size()} ranks, {seeds} seeds, medians")
    print(f"{'':20}   samples   times   bytes per sample   times")
    for way, (samples, sent) in medians.items():
        if samples == float("inf"):
            print(f"{way:20} not reached in {EPOCHS} epochs by most seeds")
            continue
        more, per_sample = samples / base[0], sent / samples
        fewer = per_sample / (base[1] / base[0])
        verdict = ""
        if way in GOALS:
            most, bytes_goal = GOALS[way]
            reached = round(more, 2) <= most and (bytes_goal is None or fewer <= bytes_goal * 1.01)
            goal = f"{most}" if bytes_goal is None else f"{most}, {bytes_goal:.3f}"
            verdict = f"   goal {goal}: {'reached' if reached else 'MISSED'}"
        print(f"{way:20} {samples:9,.0f}   {more:5.2f}   {per_sample:16,.0f}   {fewer:5.3f}{verdict}")


if __name__ == "__main__":
    main()
