"""The name of Horovod's compiled module, whose functions for each type do not exist here."""

from __future__ import annotations

from typing import Any


def __getattr__(name: str) -> Any:
    raise AttributeError(
        f"there is no compiled function {name!r}\n"
        "hint: use the functions of sirtaki.torch; one compiled file serves every PyTorch"
    )
