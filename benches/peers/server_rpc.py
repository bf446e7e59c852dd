"""Push and pull of 4.8 MB through torch.distributed.rpc: two workers, one server that applies SGD."""

import os
import statistics
import sys
import tempfile
import time

import torch
import torch.distributed.rpc as rpc
import torch.multiprocessing as multiprocessing

ELEMENTS = 1_200_000
WEIGHTS = torch.zeros(ELEMENTS)


def push_pull(gradient: torch.Tensor) -> torch.Tensor:
    """What the server does."""
    WEIGHTS.sub_(gradient, alpha=0.1)
    return WEIGHTS


def process(rank: int, file: str) -> None:
    """The server is rank 0."""
    torch.set_num_threads(1)
    os.environ.setdefault("MASTER_ADDR", "127.0.0.1")
    options = rpc.TensorPipeRpcBackendOptions(init_method=f"file://{file}")
    rpc.init_rpc(f"process{rank}", rank=rank, world_size=3, rpc_backend_options=options)
    if rank > 0:
        gradient = torch.full((ELEMENTS,), 0.5)
        times = []
        for step in range(45):
            begun = time.perf_counter()
            rpc.rpc_sync("process0", push_pull, args=(gradient,))
            if step >= 5:
                times.append(1e3 * (time.perf_counter() - begun))
        print(f"torch.distributed.rpc: {statistics.median(times):.2f} ms", flush=True)
    rpc.shutdown()


def main() -> None:
    """Three processes."""
    print(f"PyTorch {torch.__version__}", flush=True)
    with tempfile.TemporaryDirectory() as folder:
        multiprocessing.spawn(process, args=(os.path.join(folder, "store"),), nprocs=3)


if __name__ == "__main__":
    sys.exit(main())
