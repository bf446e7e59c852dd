"""``import tensorflow`` means ``tensorflow.compat.v1``, with the behaviour of TensorFlow 1.

Only in the program's own files: libraries such as Keras go on to see the TensorFlow they were
written for. So the import statement itself is replaced, because it knows who asks, and no module
is.
"""

from __future__ import annotations

import builtins
import os
import sys
import sysconfig
from collections.abc import Mapping
from typing import Any

_import = builtins.__import__
_PATHS = sysconfig.get_paths()
_LIBRARIES = tuple(
    os.path.join(os.path.realpath(_PATHS[name]), "")
    for name in ("stdlib", "platstdlib", "purelib", "platlib")
)


class _Mode:
    chosen = False


def install() -> None:
    """From now on, files of the program see TensorFlow 1."""
    builtins.__import__ = _import_tensorflow1


def keep_version_2() -> None:
    """For Keras, which needs what version 2 does; the names remain those of version 1.

    Has to be called before a graph is built.
    """
    _Mode.chosen = True
    import tensorflow.compat.v1 as tf

    if not tf.executing_eagerly():
        tf.enable_v2_behavior()


def _import_tensorflow1(
    name: str,
    globals: Mapping[str, Any] | None = None,
    locals: Mapping[str, Any] | None = None,
    fromlist: Any = (),
    level: int = 0,
) -> Any:
    module = _import(name, globals, locals, fromlist, level)
    if level or name.partition(".")[0] != "tensorflow" or not _is_own(globals):
        return module
    v1 = _version_1()
    return v1 if not fromlist or name == "tensorflow" else module


def _is_own(importer: Mapping[str, Any] | None) -> bool:
    """Whether a file of the program imports something, and not a library."""
    if importer is None:
        return False
    path = importer.get("__file__")
    if path is None:
        return importer.get("__name__") == "__main__"
    path = os.path.realpath(path)
    return not path.startswith(_LIBRARIES) and f"{os.sep}site-packages{os.sep}" not in path


def _version_1() -> Any:
    v1 = _import("tensorflow.compat.v1", fromlist=["v1"])
    if not _Mode.chosen:
        _Mode.chosen = True
        v1.disable_v2_behavior()
    return v1


def is_active() -> bool:
    """Whether this process was started with ``--tf1``."""
    return sys.modules.get(__name__) is not None and builtins.__import__ is _import_tensorflow1
