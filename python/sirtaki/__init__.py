"""Sirtaki for Python: processes that compute together.

``import sirtaki.torch as hvd`` serves PyTorch scripts written for Horovod, ``sirtaki.numpy`` those
with arrays, ``data_parallel`` those that want one line, ``sirtaki.data`` says which rank reads
which samples, ``infer`` applies a network to a volume larger than memory, and ``run`` calls a
function on several ranks, from a notebook or a test:

>>> import math, sirtaki
>>> sirtaki.run(math.sqrt, (16,), ranks=2)
[4.0, 4.0]

Everything is imported when it is first used, because the ``sirtaki`` command loads this file, too.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from sirtaki._errors import Error, JobOver, LaunchError, RankError
    from sirtaki._infer import infer
    from sirtaki._parallel import data_parallel
    from sirtaki._progress import describe, progress
    from sirtaki._run import run
    from sirtaki._study import Study
    from sirtaki._trial import report, should_stop

    __version__: str

__all__ = [
    "Error",
    "JobOver",
    "LaunchError",
    "RankError",
    "Study",
    "data_parallel",
    "describe",
    "infer",
    "progress",
    "report",
    "run",
    "should_stop",
]

_PLACES = {
    "Error": "sirtaki._errors",
    "JobOver": "sirtaki._errors",
    "LaunchError": "sirtaki._errors",
    "RankError": "sirtaki._errors",
    "Study": "sirtaki._study",
    "data_parallel": "sirtaki._parallel",
    "describe": "sirtaki._progress",
    "infer": "sirtaki._infer",
    "progress": "sirtaki._progress",
    "report": "sirtaki._trial",
    "run": "sirtaki._run",
    "should_stop": "sirtaki._trial",
}


def __getattr__(name: str) -> Any:
    if name == "__version__":
        # Slow to import, and nothing that the command needs.
        from importlib import metadata

        return metadata.version("sirtaki")
    if name not in _PLACES:
        raise AttributeError(f"module `sirtaki` has no attribute `{name}`")
    value = getattr(importlib.import_module(_PLACES[name]), name)
    globals()[name] = value
    return value
