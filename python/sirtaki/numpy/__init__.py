"""NumPy's arrays on several ranks, with Horovod's functions.

>>> import numpy
>>> import sirtaki.numpy as hvd
>>> hvd.init()
>>> hvd.allreduce(numpy.array([1.0, 2.0]), op=hvd.Average)
array([1., 2.])

Everything that shares the host's memory through the buffer protocol or DLPack is accepted, too:
``bytearray``, ``array.array``, tensors of other frameworks on the host. Results are NumPy's
arrays; functions that end in an underscore change what they are given.
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
from sirtaki._core.collectives import (
    barrier,
    join,
)
from sirtaki._core.handle import (
    poll,
    synchronize,
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
from sirtaki._core.objects import (
    allgather_object,
    broadcast_object,
)
from sirtaki._core.operations import (
    Adasum,
    Average,
    Max,
    Min,
    Product,
    Sum,
)
from sirtaki._core.process_sets import (
    ProcessSet,
    add_process_set,
    global_process_set,
    init,
    remove_process_set,
)
from sirtaki._errors import (
    Error,
)
from sirtaki._errors import Error as HorovodInternalError
from sirtaki.numpy import (
    elastic,
)
from sirtaki.numpy.asynchronous import (
    allgather_async,
    allreduce_async,
    allreduce_async_,
    alltoall_async,
    broadcast_async,
    broadcast_async_,
    grouped_allgather_async,
    grouped_allreduce_async,
    grouped_allreduce_async_,
    grouped_reducescatter_async,
    reducescatter_async,
)
from sirtaki.numpy.compression import (
    Compression,
)
from sirtaki.numpy.synchronous import (
    allgather,
    allreduce,
    allreduce_,
    alltoall,
    broadcast,
    broadcast_,
    broadcast_parameters,
    grouped_allgather,
    grouped_allreduce,
    grouped_allreduce_,
    grouped_reducescatter,
    reducescatter,
)

__all__ = [
    "Adasum",
    "Average",
    "Compression",
    "Error",
    "HorovodInternalError",
    "Max",
    "Min",
    "ProcessSet",
    "Product",
    "Sum",
    "add_process_set",
    "allgather",
    "allgather_async",
    "allgather_object",
    "allreduce",
    "allreduce_",
    "allreduce_async",
    "allreduce_async_",
    "alltoall",
    "alltoall_async",
    "barrier",
    "broadcast",
    "broadcast_",
    "broadcast_async",
    "broadcast_async_",
    "broadcast_object",
    "broadcast_parameters",
    "ccl_built",
    "cross_rank",
    "cross_size",
    "cuda_built",
    "ddl_built",
    "elastic",
    "global_process_set",
    "gloo_built",
    "gloo_enabled",
    "grouped_allgather",
    "grouped_allgather_async",
    "grouped_allreduce",
    "grouped_allreduce_",
    "grouped_allreduce_async",
    "grouped_allreduce_async_",
    "grouped_reducescatter",
    "grouped_reducescatter_async",
    "init",
    "is_homogeneous",
    "is_initialized",
    "join",
    "local_rank",
    "local_size",
    "mpi_built",
    "mpi_enabled",
    "mpi_threads_supported",
    "nccl_built",
    "poll",
    "rank",
    "reducescatter",
    "reducescatter_async",
    "remove_process_set",
    "rocm_built",
    "shutdown",
    "size",
    "start_timeline",
    "stop_timeline",
    "synchronize",
]
