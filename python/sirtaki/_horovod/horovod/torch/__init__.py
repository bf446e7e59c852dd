"""``horovod.torch`` is ``sirtaki.torch``: the very same modules, not copies."""

import sys

import sirtaki.torch
from sirtaki.torch import (
    compression,
    elastic,
    functions,
    mpi_lib_v2,
    mpi_ops,
    optimizer,
    sync_batch_norm,
)

_MODULES = {
    "": sirtaki.torch,
    ".compression": compression,
    ".elastic": elastic,
    ".elastic.sampler": elastic.sampler,
    ".elastic.state": elastic.state,
    ".functions": functions,
    ".mpi_lib_v2": mpi_lib_v2,
    ".mpi_ops": mpi_ops,
    ".optimizer": optimizer,
    ".sync_batch_norm": sync_batch_norm,
}

for _name, _module in _MODULES.items():
    sys.modules[__name__ + _name] = _module
