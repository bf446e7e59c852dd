"""PyTorch on several ranks, with the functions of ``horovod.torch``.

>>> import torch
>>> import sirtaki.torch as hvd
>>> hvd.init()
>>> model = torch.nn.Linear(2, 1)
>>> hvd.broadcast_parameters(model.state_dict(), root_rank=0)
>>> optimizer = torch.optim.SGD(model.parameters(), lr=0.1 * hvd.size())
>>> optimizer = hvd.DistributedOptimizer(optimizer, model.named_parameters())

# Layout

- ``asynchronous``, ``synchronous``, ``sparse``: collectives; those in ``synchronous`` have
  gradients.
- ``compression``: tensors that are sent as a smaller type.
- ``optimizer``, ``adasum``, ``data_parallel``, ``local_sgd``, ``server_optimizer``: training;
  ``apex``: the same for apex's scripts; ``devices``: several devices of one process.
- ``functions``, ``sync_batch_norm``: models, optimizers and objects; statistics of batches.
- ``elastic``: training that goes on after a failure.
- ``mpi_ops``, ``mpi_lib_v2``: modules of Horovod that scripts import.
- ``distributed``: a back end of ``torch.distributed``.
- ``_submit``, ``_memory``: passing tensors to the engine and back.
- ``_hooks``: gradients as they are computed.
"""

from sirtaki._core.capabilities import (
    ccl_built,
    check_extension,
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
from sirtaki.torch import distributed as distributed
from sirtaki.torch import elastic, mpi_lib_v2, mpi_ops
from sirtaki.torch.apex import DistributedDataParallel
from sirtaki.torch.asynchronous import (
    allgather_async,
    allreduce_async,
    allreduce_async_,
    alltoall_async,
    barrier,
    broadcast_async,
    broadcast_async_,
    grouped_allgather_async,
    grouped_allreduce_async,
    grouped_allreduce_async_,
    grouped_reducescatter_async,
    join,
    poll,
    reducescatter_async,
    synchronize,
)
from sirtaki.torch.compression import Compression
from sirtaki.torch.data_parallel import data_parallel
from sirtaki.torch.devices import DataParallel
from sirtaki.torch.functions import (
    allgather_object,
    broadcast_object,
    broadcast_optimizer_state,
    broadcast_parameters,
)
from sirtaki.torch.local_sgd import LocalSGD
from sirtaki.torch.optimizer import DistributedOptimizer
from sirtaki.torch.server_optimizer import ServerOptimizer
from sirtaki.torch.sparse import sparse_allreduce_async
from sirtaki.torch.sync_batch_norm import SyncBatchNorm
from sirtaki.torch.synchronous import (
    allgather,
    allreduce,
    allreduce_,
    alltoall,
    broadcast,
    broadcast_,
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
    "DataParallel",
    "DistributedDataParallel",
    "DistributedOptimizer",
    "Error",
    "HorovodInternalError",
    "LocalSGD",
    "Max",
    "Min",
    "ProcessSet",
    "Product",
    "ServerOptimizer",
    "Sum",
    "SyncBatchNorm",
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
    "broadcast_optimizer_state",
    "broadcast_parameters",
    "ccl_built",
    "check_extension",
    "cross_rank",
    "cross_size",
    "cuda_built",
    "data_parallel",
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
    "mpi_lib_v2",
    "mpi_ops",
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
    "sparse_allreduce_async",
    "start_timeline",
    "stop_timeline",
    "synchronize",
]
