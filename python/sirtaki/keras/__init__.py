"""Keras on several ranks, with the functions of ``horovod.keras``.

Keras 3 with TensorFlow, JAX or PyTorch below it, and Keras 2.

>>> import keras, numpy
>>> import sirtaki.keras as hvd
>>> hvd.init()
>>> model = keras.Sequential([keras.Input((2,)), keras.layers.Dense(1)])
>>> optimizer = hvd.DistributedOptimizer(keras.optimizers.SGD(0.1 * hvd.size()))
>>> model.compile(optimizer=optimizer, loss="mse")
>>> start = hvd.callbacks.BroadcastGlobalVariablesCallback(0)
>>> x, y = numpy.ones((4, 2)), numpy.ones((4, 1))
>>> history = model.fit(x, y, callbacks=[start], verbose=0)

# Layout

- ``optimizer``, ``_keras2``, ``_reduction``: optimizers that reduce gradients.
- ``callbacks``, ``rates``, ``elastic``: what ``fit`` calls.
- ``parallel``, ``saving``: whole models.
- ``operations``, ``_variables``: tensors and variables.
- ``_library``: which Keras there is, and what is below it.
"""

from sirtaki._core.capabilities import (
    ccl_built,
    cuda_built,
    ddl_built,
    gloo_built,
    gloo_enabled,
    mpi_built,
    mpi_enabled,
    mpi_threads_supported,
    nccl_built,
    rocm_built,
    start_timeline,
    stop_timeline,
)
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
from sirtaki._errors import Error as HorovodInternalError
from sirtaki.keras import callbacks, elastic
from sirtaki.keras.compression import Compression
from sirtaki.keras.operations import (
    allgather,
    allreduce,
    broadcast,
    broadcast_global_variables,
    broadcast_variables,
    reducescatter,
)
from sirtaki.keras.optimizer import DistributedOptimizer, PartialDistributedOptimizer
from sirtaki.keras.parallel import data_parallel
from sirtaki.keras.saving import load_model

__all__ = [
    "Adasum",
    "Average",
    "Compression",
    "DistributedOptimizer",
    "Error",
    "HorovodInternalError",
    "Max",
    "Min",
    "PartialDistributedOptimizer",
    "ProcessSet",
    "Product",
    "Sum",
    "add_process_set",
    "allgather",
    "allgather_object",
    "allreduce",
    "broadcast",
    "broadcast_global_variables",
    "broadcast_object",
    "broadcast_variables",
    "callbacks",
    "ccl_built",
    "cross_rank",
    "cross_size",
    "cuda_built",
    "data_parallel",
    "ddl_built",
    "elastic",
    "global_process_set",
    "gloo_built",
    "gloo_enabled",
    "init",
    "is_homogeneous",
    "is_initialized",
    "load_model",
    "local_rank",
    "local_size",
    "mpi_built",
    "mpi_enabled",
    "mpi_threads_supported",
    "nccl_built",
    "rank",
    "reducescatter",
    "remove_process_set",
    "rocm_built",
    "shutdown",
    "size",
    "start_timeline",
    "stop_timeline",
]
