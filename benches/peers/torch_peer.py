"""PyTorch training on two ranks as a benchmark peer, by whatever its first argument names:

- `alone`: nothing is exchanged, and sirtaki is not used.
- `in_step`: sirtaki, but only to start each step after the other rank has ended its last one.
- `optimizer`: sirtaki's DistributedOptimizer. `parallel`: sirtaki's data_parallel.
- `ddp`: PyTorch's DistributedDataParallel over the back end in BACKEND, Gloo or sirtaki.
- `horovod`: Horovod's DistributedOptimizer.

An order names the work: a network of torch_work.py to train, `allreduce`, a tensor of four bytes, or `pipeline.BYTES`,
PyTorch's own pipeline. RANK and WORLD_SIZE say who this is; with INIT_METHOD, PyTorch's processes meet there.
"""

import os
import sys

import torch

from common import serve_orders, timed
from torch_work import WORKS


class Alone:
    def __init__(self):
        self.rank, self.size = int(os.environ["RANK"]), int(os.environ["WORLD_SIZE"])

    def model(self, model):
        return model

    def optimizer(self, optimizer, model):
        return optimizer

    def after_step(self):
        pass

    def allreduce(self, tensor):
        return tensor.clone()

    def barrier(self):
        pass

    def leave(self):
        pass


class Optimizer(Alone):
    """Horovod's interface, whichever library implements it."""

    def __init__(self, library):
        self.library = library
        library.init()
        self.rank, self.size = library.rank(), library.size()

    def model(self, model):
        self.library.broadcast_parameters(model.state_dict(), root_rank=0)
        return model

    def optimizer(self, optimizer, model):
        return self.library.DistributedOptimizer(optimizer, named_parameters=model.named_parameters())

    def allreduce(self, tensor):
        return self.library.allreduce(tensor, name="small")

    def barrier(self):
        self.library.barrier()

    def leave(self):
        self.library.shutdown()


class InStep(Optimizer):
    def model(self, model):
        return model

    def optimizer(self, optimizer, model):
        return optimizer

    def after_step(self):
        self.barrier()


class Parallel(Optimizer):
    def model(self, model):
        return self.library.data_parallel(model)

    def optimizer(self, optimizer, model):
        return optimizer


class Ddp(Alone):
    def __init__(self):
        super().__init__()
        import torch.distributed as dist

        self.dist = dist
        backend, method = os.environ["BACKEND"], os.environ.get("INIT_METHOD", "env://")
        if backend == "sirtaki":
            import sirtaki.torch  # noqa: F401
        dist.init_process_group(backend, init_method=method, rank=self.rank, world_size=self.size)

    def model(self, model):
        return torch.nn.parallel.DistributedDataParallel(model)

    def allreduce(self, tensor):
        result = tensor.clone()
        self.dist.all_reduce(result)
        return result

    def barrier(self):
        self.dist.barrier()

    def leave(self):
        self.dist.destroy_process_group()


def system(name):
    if name == "alone":
        return Alone()
    if name == "ddp":
        return Ddp()
    if name == "horovod":
        import horovod.torch as library

        return Optimizer(library)
    import sirtaki.torch as library

    return {"in_step": InStep, "optimizer": Optimizer, "parallel": Parallel}[name](library)


class Trainer:
    """The current work, which is kept until another one is ordered."""

    def __init__(self, system):
        self.system, self.name, self.step = system, None, None

    def answer(self, order):
        name = order["work"]
        if name != self.name:
            # Frees the memory of the last one first.
            self.name, self.step = name, None
            self.step = self.prepared(name)
        self.system.barrier()
        return timed(self.step, order["iterations"])

    def prepared(self, name):
        if name.startswith("pipeline."):
            from torch_pipeline import pipeline

            return pipeline(int(name.split(".")[1]))
        if name == "allreduce":
            tensor = torch.ones(1)
            return lambda: self.system.allreduce(tensor)
        torch.manual_seed(self.system.rank)
        work = WORKS[name]()
        model = self.system.model(work.model)
        optimizer = self.system.optimizer(work.optimizer(model.parameters()), model)

        def step():
            optimizer.zero_grad()
            work.loss(model).backward()
            optimizer.step()
            self.system.after_step()

        return step


def main():
    torch.set_num_threads(1)
    name = sys.argv[1]
    chosen = system(name)
    serve_orders(f"{name}, PyTorch {torch.__version__}", chosen.rank, chosen.size, Trainer(chosen).answer)
    chosen.leave()


if __name__ == "__main__":
    sys.exit(main())
