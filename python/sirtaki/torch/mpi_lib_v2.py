"""The name of Horovod's compiled module: the functions for every type of tensor do not exist here."""

from __future__ import annotations

from typing import Any


def __getattr__(name: str) -> Any:
    raise AttributeError(
        f"there is no compiled function {name!r}\n"
        "hint: one compiled file serves all versions of PyTorch; use the functions of sirtaki.torch"
    )
