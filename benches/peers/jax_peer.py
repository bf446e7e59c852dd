"""JAX on two ranks as a benchmark peer, by whatever its first argument names:

- `alone`: nothing is exchanged, and sirtaki is not used.
- `sirtaki`: sirtaki.jax.
- `gloo`: JAX's own processes, which meet at COORDINATOR and reduce over Gloo.

An order names the work: a network of jax_work.py to train, or `allreduce.BYTES`. RANK and WORLD_SIZE say who this is.
"""

import os
import sys

os.environ["JAX_PLATFORMS"] = "cpu"
# One thread for arithmetic: as many ranks as cores.
os.environ["XLA_FLAGS"] = "--xla_cpu_multi_thread_eigen=false"
os.environ["NPROC"] = "1"

import jax
import jax.numpy as jnp
import numpy

from common import serve_orders, timed
from jax_work import RATE, WORKS


def stepped(weights, gradients):
    return jax.tree.map(lambda weight, gradient: weight - RATE * gradient, weights, gradients)


class Alone:
    def __init__(self):
        self.rank, self.size = int(os.environ["RANK"]), int(os.environ["WORLD_SIZE"])

    def step(self, work):
        def step(weights, *batch):
            value, gradients = jax.value_and_grad(work.loss)(weights, *batch)
            return stepped(weights, gradients), value

        return jax.jit(step, donate_argnums=0), work.weights(), work.batch(self.rank)

    def allreduce(self, array):
        return jax.jit(jnp.copy), jnp.asarray(array)

    def barrier(self):
        pass

    def leave(self):
        pass


class Sirtaki(Alone):
    def __init__(self):
        import sirtaki.jax as library

        self.library = library
        library.init()
        self.rank, self.size = library.rank(), library.size()

    def step(self, work):
        def step(weights, *batch):
            value, gradients = self.library.value_and_grad(work.loss)(weights, *batch)
            return stepped(weights, gradients), value

        return jax.jit(step, donate_argnums=0), work.weights(), work.batch(self.rank)

    def allreduce(self, array):
        return jax.jit(lambda x: self.library.all_reduce(x, op=self.library.Sum)), jnp.asarray(array)

    def barrier(self):
        self.library.barrier()

    def leave(self):
        self.library.shutdown()


class Gloo(Alone):
    def __init__(self):
        super().__init__()
        jax.config.update("jax_cpu_collectives_implementation", "gloo")
        jax.distributed.initialize(os.environ["COORDINATOR"], self.size, self.rank)
        self.mesh = jax.sharding.Mesh(numpy.array(jax.devices()), ("rank",))
        self.split, self.same = jax.sharding.PartitionSpec("rank"), jax.sharding.PartitionSpec()

    def mapped(self, function, inputs, outputs):
        if hasattr(jax, "shard_map"):
            return jax.shard_map(
                function, mesh=self.mesh, in_specs=inputs, out_specs=outputs, check_vma=False
            )
        from jax.experimental.shard_map import shard_map

        return shard_map(function, mesh=self.mesh, in_specs=inputs, out_specs=outputs, check_rep=False)

    def placed(self, spec, array):
        sharding = jax.sharding.NamedSharding(self.mesh, spec)
        return jax.make_array_from_process_local_data(sharding, numpy.asarray(array))

    def step(self, work):
        def step(weights, *batch):
            both = jax.value_and_grad(work.loss)(weights, *batch)
            value, gradients = jax.lax.pmean(both, "rank")
            return stepped(weights, gradients), value

        batch = [self.placed(self.split, array) for array in work.batch(self.rank)]
        weights = jax.tree.map(lambda array: self.placed(self.same, array), work.weights())
        inputs = (self.same, *[self.split] * len(batch))
        return jax.jit(self.mapped(step, inputs, self.same), donate_argnums=0), weights, batch

    def allreduce(self, array):
        summed = self.mapped(lambda x: jax.lax.psum(x, "rank"), self.split, self.split)
        return jax.jit(summed), self.placed(self.split, array[None])

    def barrier(self):
        from jax.experimental.multihost_utils import sync_global_devices

        sync_global_devices("order")

    def leave(self):
        jax.distributed.shutdown()


class Worker:
    """The current work, which is kept until another one is ordered."""

    def __init__(self, system):
        self.system, self.name, self.call = system, None, None

    def answer(self, order):
        if order["work"] != self.name:
            # Frees the memory of the last one first.
            self.name, self.call = order["work"], None
            self.call = self.prepared(self.name)
            self.call()
        self.system.barrier()
        return timed(self.call, order["iterations"])

    def prepared(self, name):
        if name.startswith("allreduce."):
            array = numpy.ones(int(name.split(".")[1]) // 4, numpy.float32)
            function, argument = self.system.allreduce(array)
            return lambda: function(argument).block_until_ready()
        step, weights, batch = self.system.step(WORKS[name])

        def call():
            nonlocal weights
            weights, value = step(weights, *batch)
            jax.block_until_ready((weights, value))

        return call


def main():
    name = sys.argv[1]
    system = {"alone": Alone, "sirtaki": Sirtaki, "gloo": Gloo}[name]()
    serve_orders(f"{name}, JAX {jax.__version__}", system.rank, system.size, Worker(system).answer)
    system.leave()


if __name__ == "__main__":
    sys.exit(main())
