"""``horovod.tensorflow`` is ``sirtaki.tensorflow``: the very same modules, not copies."""

import sys

import sirtaki.tensorflow
from sirtaki.tensorflow import (
    compression,
    elastic,
    functions,
    mpi_ops,
    sync_batch_norm,
    util,
)

_MODULES = {
    "": sirtaki.tensorflow,
    ".compression": compression,
    ".elastic": elastic,
    ".functions": functions,
    ".mpi_ops": mpi_ops,
    ".sync_batch_norm": sync_batch_norm,
    ".util": util,
}

for _name, _module in _MODULES.items():
    sys.modules[__name__ + _name] = _module
