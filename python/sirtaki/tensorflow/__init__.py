"""TensorFlow on several ranks, with the functions of ``horovod.tensorflow``.

>>> import tensorflow as tf
>>> import sirtaki.tensorflow as hvd
>>> hvd.init()
>>> weight = tf.Variable(3.0)
>>> with tf.GradientTape() as tape:
...     loss = weight * weight
>>> tape = hvd.DistributedGradientTape(tape)
>>> float(tape.gradient(loss, weight))
6.0

# Layout

- ``collectives``, ``sparse``, ``places``: collectives with gradients, and questions, as ops.
- ``compression``: tensors that are sent as a smaller type.
- ``gradients``, ``tape``, ``optimizer``, ``aggregation``: training.
- ``functions``, ``sync_batch_norm``: variables and objects; statistics of batches.
- ``elastic``: training that goes on after a failure.
- ``mpi_ops``: a module of Horovod that scripts import.
- ``_ops``, ``_library``: the ops themselves, and how TensorFlow gets to know them.
"""

from sirtaki._core.capabilities import (
    ccl_built,
    check_extension,
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
from sirtaki._core.operations import Adasum, Average, Max, Min, Product, Sum
from sirtaki._core.process_sets import (
    ProcessSet,
    add_process_set,
    global_process_set,
    remove_process_set,
)
from sirtaki._errors import Error
from sirtaki._errors import Error as HorovodInternalError
from sirtaki.tensorflow import elastic
from sirtaki.tensorflow.capabilities import cuda_built, init
from sirtaki.tensorflow.collectives import (
    allgather,
    allreduce,
    alltoall,
    barrier,
    broadcast,
    grouped_allgather,
    grouped_allreduce,
    grouped_reducescatter,
    join,
    reducescatter,
)
from sirtaki.tensorflow.compression import Compression
from sirtaki.tensorflow.functions import (
    BroadcastGlobalVariablesHook,
    allgather_object,
    broadcast_,
    broadcast_global_variables,
    broadcast_object,
    broadcast_object_fn,
    broadcast_variables,
)
from sirtaki.tensorflow.optimizer import DistributedOptimizer
from sirtaki.tensorflow.places import (
    local_rank_op,
    local_size_op,
    process_set_included_op,
    rank_op,
    size_op,
)
from sirtaki.tensorflow.sync_batch_norm import SyncBatchNormalization
from sirtaki.tensorflow.tape import DistributedGradientTape, PartialDistributedGradientTape
from sirtaki.tensorflow.util import _executing_eagerly as _executing_eagerly

__all__ = [
    "Adasum",
    "Average",
    "BroadcastGlobalVariablesHook",
    "Compression",
    "DistributedGradientTape",
    "DistributedOptimizer",
    "Error",
    "HorovodInternalError",
    "Max",
    "Min",
    "PartialDistributedGradientTape",
    "ProcessSet",
    "Product",
    "Sum",
    "SyncBatchNormalization",
    "add_process_set",
    "allgather",
    "allgather_object",
    "allreduce",
    "alltoall",
    "barrier",
    "broadcast",
    "broadcast_",
    "broadcast_global_variables",
    "broadcast_object",
    "broadcast_object_fn",
    "broadcast_variables",
    "ccl_built",
    "check_extension",
    "cross_rank",
    "cross_size",
    "cuda_built",
    "ddl_built",
    "elastic",
    "global_process_set",
    "gloo_built",
    "gloo_enabled",
    "grouped_allgather",
    "grouped_allreduce",
    "grouped_reducescatter",
    "init",
    "is_homogeneous",
    "is_initialized",
    "join",
    "local_rank",
    "local_rank_op",
    "local_size",
    "local_size_op",
    "mpi_built",
    "mpi_enabled",
    "mpi_threads_supported",
    "nccl_built",
    "process_set_included_op",
    "rank",
    "rank_op",
    "reducescatter",
    "remove_process_set",
    "rocm_built",
    "shutdown",
    "size",
    "size_op",
    "start_timeline",
    "stop_timeline",
]
