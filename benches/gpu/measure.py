"""What one job of ranks measures, sirtaki and PyTorch's NCCL in turns; the first rank writes the
results.

Started by bench.py: measure.py SECTION FILE. Times are those of the slowest rank.
"""

import gc
import json
import os
import statistics
import sys
import time

import torch
import torch.distributed as dist

import sirtaki
import sirtaki.torch as hvd
from models import WORKS

ROUNDS = 5
IN_FLIGHT = 100
SIZES = [4, 1 << 10, 64 << 10, 1 << 20, 16 << 20, 64 << 20]
WARM_UP = 6
MIB = 1 << 20


def slowest(times):
    """The median over calls of the slowest rank's time, in microseconds."""
    times = torch.tensor(times, dtype=torch.float64) * 1e6
    return statistics.median(hvd.allreduce(times, op=hvd.Max, name="times").tolist())


def timed(call, repeat):
    """Seconds of each call, until the GPU is done with it."""
    hvd.barrier()
    torch.cuda.synchronize()
    seconds = []
    for _ in range(repeat):
        begin = time.perf_counter()
        call()
        torch.cuda.synchronize()
        seconds.append(time.perf_counter() - begin)
    return seconds


def in_turns(calls, repeat, rounds=ROUNDS):
    """The median of each of several calls, which take turns, every other time in reverse order."""
    for call in calls.values():
        timed(call, max(2, repeat // 4))
    seconds = {name: [] for name in calls}
    for turn in range(rounds):
        for name in list(calls)[:: 1 if turn % 2 else -1]:
            seconds[name] += timed(calls[name], repeat)
    return {name: slowest(times) for name, times in seconds.items()}


def all_reduces(device):
    found = {"blocking": {}, "in flight": {}}
    # A second group of PyTorch's shows how much the same thing varies.
    second = dist.new_group(backend="nccl")
    for size in SIZES:
        tensor = torch.zeros(size // 4, device=device)
        calls = {
            "ours": lambda: hvd.allreduce_(tensor, op=hvd.Sum, name="blocking"),
            "theirs": lambda: dist.all_reduce(tensor),
            "theirs again": lambda: dist.all_reduce(tensor, group=second),
        }
        found["blocking"][size] = in_turns(calls, 30)
    for size in [size for size in SIZES if size <= MIB]:
        tensors = [torch.zeros(size // 4, device=device) for _ in range(IN_FLIGHT)]
        names = [f"flight {number}" for number in range(IN_FLIGHT)]

        def ours():
            handles = [
                hvd.allreduce_async_(t, op=hvd.Sum, name=name)
                for t, name in zip(tensors, names)
            ]
            for handle in handles:
                hvd.synchronize(handle)

        def theirs():
            for work in [dist.all_reduce(tensor, async_op=True) for tensor in tensors]:
                work.wait()

        found["in flight"][size] = in_turns({"ours": ours, "theirs": theirs}, 3)
    return found


def own_seconds():
    """CPU time of sirtaki's own threads."""
    ticks = 0
    for task in os.listdir("/proc/self/task"):
        with open(f"/proc/self/task/{task}/stat") as file:
            name, rest = file.read().split("(", 1)[1].rsplit(")", 1)
        if name.startswith("sirtaki"):
            ticks += sum(map(int, rest.split()[11:13]))
    return ticks / os.sysconf("SC_CLK_TCK")


def waiting(device):
    """The share of a core that sirtaki's threads take while collectives wait for the GPU."""
    tensors = [torch.zeros(1 << 18, device=device) for _ in range(20)]
    cpu, begin = own_seconds(), time.perf_counter()
    for _ in range(6):
        # Half a second or more, at the clock of an H200.
        torch.cuda._sleep(1_000_000_000)
        handles = [
            hvd.allreduce_async_(t, name=f"waiting {number}")
            for number, t in enumerate(tensors)
        ]
        for handle in handles:
            hvd.synchronize(handle)
        torch.cuda.synchronize()
    share = (own_seconds() - cpu) / (time.perf_counter() - begin)
    return hvd.allreduce(torch.tensor([share]), op=hvd.Max, name="share").item()


def timing(device):
    """Microseconds of small all-reduces, one by one and 100 at a time."""
    tensors = [torch.zeros(1, device=device) for _ in range(IN_FLIGHT)]

    def flight():
        handles = [
            hvd.allreduce_async_(t, name=f"flight {number}")
            for number, t in enumerate(tensors)
        ]
        for handle in handles:
            hvd.synchronize(handle)

    return in_turns(
        {
            "one": lambda: hvd.allreduce_(tensors[0], name="one"),
            "100 in flight": flight,
        },
        50,
    )


def submitting(device):
    """Microseconds that handing in a tensor takes while the GPU is busy for some 100 ms."""
    group = dist.new_group(backend="sirtaki")
    systems = {
        "hvd": lambda tensor, number: (
            hvd.allreduce_async_(tensor, name=f"busy {number}").wait
        ),
        "torch.distributed": lambda tensor, _: (
            dist.all_reduce(tensor, group=group, async_op=True).wait
        ),
        "theirs": lambda tensor, _: dist.all_reduce(tensor, async_op=True).wait,
    }
    seconds = {name: [] for name in systems}
    for turn in range(2 + 2 * ROUNDS):
        for name, submit in systems.items():
            tensors = [torch.ones(1000, device=device) for _ in range(20)]
            hvd.barrier()
            torch.cuda.synchronize()
            torch.cuda._sleep(200_000_000)
            waits = []
            for number, tensor in enumerate(tensors):
                begin = time.perf_counter()
                waits.append(submit(tensor, number))
                # The first turns warm up.
                if turn >= 2:
                    seconds[name].append(time.perf_counter() - begin)
            for wait in waits:
                wait()
            torch.cuda.synchronize()
    return {name: slowest(times) for name, times in seconds.items()}


def step_of(system, work):
    """A function that makes a training step."""
    model, optimizer = work.model, work.optimizer()
    if system == "DDP":
        model = torch.nn.parallel.DistributedDataParallel(
            model, device_ids=[torch.cuda.current_device()]
        )
    elif system == "hvd":
        hvd.broadcast_parameters(model.state_dict(), 0)
        optimizer = hvd.DistributedOptimizer(optimizer, model.named_parameters())
    elif system == "data_parallel":
        model = sirtaki.data_parallel(model)

    def step():
        optimizer.zero_grad()
        with torch.autocast("cuda", torch.bfloat16):
            loss = work.loss(model)
        loss.backward()
        optimizer.step()

    return step


def training(device, systems, several, repeats=1):
    """Microseconds of a step by each system, in models that are made anew in every turn. Of several models in a process,
    those made later run slower, so every system has every place in the order equally often."""
    found = {}
    for kind in WORKS:
        seconds = {system: [] for system in systems}
        for turn in range(1 + len(systems) * repeats):
            first = turn % len(systems)
            for system in systems[first:] + systems[:first]:
                torch.manual_seed(hvd.rank())
                step = step_of(system, kind(device))
                timed(step, WARM_UP)
                # The first turn warms up.
                for _ in range(3 if turn else 0):
                    seconds[system].append(
                        sum(timed(lambda: [step() for _ in range(several)], 1))
                        / several
                    )
                del step
                gc.collect()
                torch.cuda.empty_cache()
        found[kind.name] = {system: slowest(times) for system, times in seconds.items()}
    return found


def alone(device):
    tensor = torch.zeros(16 << 20, device=device)
    calls = {
        "in place": lambda: hvd.allreduce_(tensor, name="in place"),
        "new": lambda: hvd.allreduce(tensor, name="new"),
        "clone": lambda: tensor.clone(),
        "nothing": lambda: None,
    }
    # Plain PyTorch is measured twice, to show how much the same thing varies.
    steps = training(
        device, ["plain", "hvd", "data_parallel", "plain again"], 10, repeats=3
    )
    return {"training": steps, "allreduce": in_turns(calls, 20)}


def libraries():
    """The NCCL libraries of this process."""
    with open("/proc/self/maps") as file:
        return sorted({line.split()[-1] for line in file if "libnccl" in line})


def about(device):
    return {
        "gpu": torch.cuda.get_device_name(device),
        "torch": torch.__version__,
        "nccl": ".".join(map(str, torch.cuda.nccl.version())),
        "ours": hvd.nccl_built(),
        "libraries": libraries(),
        "ranks": hvd.size(),
        "way": os.environ.get("SIRTAKI_GPU", "auto"),
    }


def main():
    section, file = sys.argv[1:]
    torch.set_num_threads(1)
    hvd.init()
    device = torch.device("cuda", hvd.local_rank() % torch.cuda.device_count())
    torch.cuda.set_device(device)
    if section in ("alone", "timing"):
        found = {"alone": alone, "timing": timing}[section](device)
    else:
        dist.init_process_group("nccl", device_id=device)
        if section == "allreduce":
            found = {**all_reduces(device), "waiting": waiting(device)}
        elif section == "submitting":
            found = submitting(device)
        else:
            found = training(device, ["plain", "DDP", "hvd", "data_parallel"], 4)
        hvd.barrier()
    if hvd.rank() == 0:
        with open(file, "w") as output:
            json.dump({"found": found, **about(device)}, output)
    if dist.is_initialized():
        dist.destroy_process_group()
    hvd.shutdown()


if __name__ == "__main__":
    main()
