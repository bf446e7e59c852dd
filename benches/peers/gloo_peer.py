"""PyTorch's Gloo as a benchmark peer.

Rank, size and rendezvous come from RANK, WORLD_SIZE, MASTER_ADDR and MASTER_PORT, or from INIT_METHOD (such as
file:///some/new/file); Gloo itself reads GLOO_SOCKET_IFNAME. The orders arrive over the Unix socket named by
SIRTAKI_BENCH_SOCKET, one JSON object per line.
"""

import json
import os
import socket
import sys
import time

import torch
import torch.distributed as dist

WARM_UP = 2


def measure(count, iterations):
    data = torch.ones(count, dtype=torch.float32)
    dist.barrier()
    for _ in range(WARM_UP):
        dist.all_reduce(data)
    micros = []
    for _ in range(iterations):
        start = time.perf_counter_ns()
        dist.all_reduce(data)
        micros.append((time.perf_counter_ns() - start) / 1000)
    return micros


def main():
    rank, size = int(os.environ["RANK"]), int(os.environ["WORLD_SIZE"])
    torch.set_num_threads(1)
    method = os.environ.get("INIT_METHOD", "env://")
    dist.init_process_group("gloo", init_method=method, rank=rank, world_size=size)
    with socket.socket(socket.AF_UNIX) as connection:
        connection.connect(os.environ["SIRTAKI_BENCH_SOCKET"])
        lines = connection.makefile("rw")

        def say(line):
            lines.write(json.dumps(line) + "\n")
            lines.flush()

        say({"peer": "gloo", "rank": rank, "size": size})
        for line in lines:
            order = json.loads(line)
            if order.get("end"):
                break
            say({"micros": measure(order["bytes"] // 4, order["iterations"])})
    dist.destroy_process_group()


if __name__ == "__main__":
    sys.exit(main())
