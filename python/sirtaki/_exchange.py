"""How a call reaches the ranks, and how their replies reach the caller.

Both are passed in files without a name: ranks open them through the caller's descriptors in
``/proc``, which the kernel allows only to the same user. So nothing can be left behind in a
temporary folder, even if the caller is killed.
"""

from __future__ import annotations

import io
import os
import pickle
import sys
import tempfile
import types
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Callable

from sirtaki._errors import LaunchError

SCRIPT = Path(__file__).with_name("_call.py")


class Exchange:
    """Open files: one with the call, and one per rank for its reply."""

    def __init__(
        self,
        function: Callable[..., Any],
        args: Sequence[Any],
        kwargs: Mapping[str, Any],
        ranks: int,
    ) -> None:
        call = pickle_call((function, tuple(args), dict(kwargs)))
        self._replies = [tempfile.TemporaryFile() for _ in range(ranks)]
        self._call = tempfile.TemporaryFile()
        frame = {
            "path": [entry for entry in sys.path if isinstance(entry, str)],
            "replies": [reply.fileno() for reply in self._replies],
        }
        self._call.write(pickle.dumps(frame) + call)
        self._call.flush()

    def __enter__(self) -> Exchange:
        return self

    def __exit__(self, *_: object) -> None:
        for file in (self._call, *self._replies):
            file.close()

    def command(self) -> list[str]:
        """What a rank has to run."""
        return [sys.executable, str(SCRIPT), str(os.getpid()), str(self._call.fileno())]

    def replies(self) -> list[dict | None]:
        """What each rank replied; ``None`` where it died before its reply was complete."""
        return [_read(reply) for reply in self._replies]


def _read(reply: Any) -> dict | None:
    reply.seek(0)
    try:
        return pickle.load(reply)
    except (EOFError, pickle.UnpicklingError):
        return None


def pickle_call(call: tuple) -> bytes:
    """By value if cloudpickle is installed, else by names that ranks must be able to import."""
    try:
        import cloudpickle
    except ImportError:
        return _pickle_by_name(call)
    try:
        return cloudpickle.dumps(call)
    except Exception as error:
        raise LaunchError(
            f"the function or its arguments cannot be pickled: {error}\n"
            "hint: open files, locks and connections cannot travel; open them inside the function"
        ) from error


def _pickle_by_name(call: tuple) -> bytes:
    file = io.BytesIO()
    try:
        _ByName(file).dump(call)
    except Exception as error:
        raise LaunchError(
            f"the function or its arguments cannot be handed to other processes: {error}\n"
            "hint: `pip install cloudpickle` makes it work for notebooks, scripts, lambdas and "
            "inner functions; without it, they must be in a module that ranks can import"
        ) from error
    return file.getvalue()


class _ByName(pickle.Pickler):
    """Refuses what only the caller can find: ranks have a different main module."""

    def reducer_override(self, value: Any) -> Any:
        named = isinstance(value, (type, types.FunctionType))
        if named and value.__module__ == "__main__":
            raise pickle.PicklingError(
                f"`{value.__qualname__}` is defined in the main script or notebook"
            )
        return NotImplemented
