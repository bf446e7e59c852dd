"""A PyTorch script that does one all-reduce and says when: by the system's monotonic clock, which all processes share."""

import sys
import time

import torch
import torch.distributed as dist


def main():
    dist.init_process_group("gloo")
    dist.all_reduce(torch.ones(1))
    # In one piece, because both ranks may share one output.
    sys.stdout.write(f"done at {time.monotonic_ns()}\n")
    sys.stdout.flush()
    dist.destroy_process_group()


if __name__ == "__main__":
    sys.exit(main())
