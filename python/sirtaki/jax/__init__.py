"""JAX on several ranks: collectives inside and outside of ``jit``, and training with optax.

>>> import jax, jax.numpy as jnp, optax
>>> import sirtaki.jax as hvd
>>> hvd.init()
>>> parameters = hvd.broadcast_parameters({"weights": jnp.zeros(2)}, root_rank=0)
>>> optimizer = hvd.DistributedOptimizer(optax.sgd(0.1 * hvd.size()))
>>> state = optimizer.init(parameters)

Functions have the names that JAX's users expect; ``allreduce``, ``allgather``, ``alltoall`` and
``reducescatter`` are Horovod's names for the same functions.

# Layout

- ``collectives``: arrays; ``trees``: parameters and gradients; ``training``: averaged gradients.
- ``_calls``: what is traced, with gradients; ``_handler``: calls of the engine by XLA's programs.
- ``_names``: names of calls; ``_rounds``: ranks that change.
"""

from sirtaki._core.capabilities import start_timeline, stop_timeline
from sirtaki._core.collectives import barrier, join
from sirtaki._core.job import (
    cross_rank,
    cross_size,
    is_homogeneous,
    is_initialized,
    local_rank,
    local_size,
    rank,
    shutdown,
    size,
)
from sirtaki._core.objects import allgather_object, broadcast_object
from sirtaki._core.operations import Adasum, Average, Max, Min, Product, Sum
from sirtaki._core.process_sets import (
    ProcessSet,
    add_process_set,
    global_process_set,
    init,
    remove_process_set,
)
from sirtaki._errors import Error
from sirtaki.jax.collectives import all_gather, all_reduce, all_to_all, broadcast, reduce_scatter
from sirtaki.jax.training import DistributedOptimizer, data_parallel, value_and_grad
from sirtaki.jax.trees import all_reduce_tree, broadcast_parameters

allreduce, allgather = all_reduce, all_gather
alltoall, reducescatter = all_to_all, reduce_scatter

__all__ = [
    "Adasum",
    "Average",
    "DistributedOptimizer",
    "Error",
    "Max",
    "Min",
    "ProcessSet",
    "Product",
    "Sum",
    "add_process_set",
    "all_gather",
    "all_reduce",
    "all_reduce_tree",
    "all_to_all",
    "allgather",
    "allgather_object",
    "allreduce",
    "alltoall",
    "barrier",
    "broadcast",
    "broadcast_object",
    "broadcast_parameters",
    "cross_rank",
    "cross_size",
    "data_parallel",
    "global_process_set",
    "init",
    "is_homogeneous",
    "is_initialized",
    "join",
    "local_rank",
    "local_size",
    "rank",
    "reduce_scatter",
    "reducescatter",
    "remove_process_set",
    "shutdown",
    "size",
    "start_timeline",
    "stop_timeline",
    "value_and_grad",
]
