"""``horovod.torch`` is ``sirtaki.torch``: the very same module, not a copy."""

import sys

import sirtaki.torch
from sirtaki.torch import compression, functions, optimizer, sync_batch_norm

_MODULES = {
    "": sirtaki.torch,
    ".compression": compression,
    ".functions": functions,
    ".mpi_ops": sirtaki.torch,
    ".optimizer": optimizer,
    ".sync_batch_norm": sync_batch_norm,
}

for _name, _module in _MODULES.items():
    sys.modules[__name__ + _name] = _module
sirtaki.torch.mpi_ops = sirtaki.torch
