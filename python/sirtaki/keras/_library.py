"""Which Keras a program uses, and which framework is below it.

Keras 3 computes with TensorFlow, JAX or PyTorch. Keras 2, alone or as ``tf_keras``, is part of
TensorFlow and is recognized by its version.
"""

from __future__ import annotations

import importlib
import os
import sys
from types import ModuleType
from typing import Any

_FRAMEWORKS = ("tensorflow", "jax", "torch")


def _find() -> ModuleType:
    """Keras as the program sees it: TensorFlow's own variable can demand version 2."""
    wants_2 = os.environ.get("TF_USE_LEGACY_KERAS", "").lower() in ("1", "true")
    has_only_2 = "tf_keras" in sys.modules and "keras" not in sys.modules
    return importlib.import_module("tf_keras" if wants_2 or has_only_2 else "keras")


keras: Any = _find()
IS_3 = not keras.__version__.startswith("2.")
FRAMEWORK: str = keras.backend.backend() if IS_3 else "tensorflow"
if FRAMEWORK not in _FRAMEWORKS:
    raise ImportError(
        f"Keras computes with {FRAMEWORK}, which cannot train on several ranks\n"
        f"hint: set KERAS_BACKEND to one of {', '.join(_FRAMEWORKS)} before Keras is imported"
    )


def _allow_version_1() -> None:
    """Under ``sirtaki run --tf1``: Keras needs what TensorFlow 2 does, and has no sessions."""
    version_1 = sys.modules.get("sirtaki_tf1")
    if version_1 is None or FRAMEWORK != "tensorflow":
        return
    version_1.keep_version_2()
    if not hasattr(keras.backend, "set_session"):
        keras.backend.set_session = lambda session: None


_allow_version_1()


def front_end() -> Any:
    """Sirtaki's module for the framework below Keras."""
    return importlib.import_module(f"sirtaki.{FRAMEWORK}")


def is_keras(thing: Any) -> bool:
    """Whether something, such as a model, is of this Keras."""
    return isinstance(thing, keras.Model)
