"""Explains failed imports of what Horovod has and Sirtaki does not."""

from __future__ import annotations

from importlib.abc import MetaPathFinder
from typing import Any

_INSTEAD = {
    "mxnet": "MXNet",
    "spark": "Spark",
    "ray": "Ray",
    "data": "Horovod's data loaders",
}


class Finder(MetaPathFinder):
    """Comes last, so that it is only asked for modules that no other finder has found."""

    def find_spec(self, fullname: str, path: Any = None, target: Any = None) -> None:
        """Says what to use instead of a module of Horovod."""
        package, _, rest = fullname.partition(".")
        if package != "horovod" or not rest:
            return
        part = rest.partition(".")[0]
        what = f"{_INSTEAD[part]} is" if part in _INSTEAD else f"{fullname} is"
        raise ModuleNotFoundError(
            f"{what} not supported: under `sirtaki run --horovod`, `horovod` is Sirtaki, which "
            "has horovod.tensorflow, horovod.torch, horovod.run and what belongs to them\n"
            "hint: port the script to PyTorch, or run it with Horovod itself, without --horovod",
            name=fullname,
        )
