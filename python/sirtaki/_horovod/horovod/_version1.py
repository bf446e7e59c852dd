"""A hint for scripts of TensorFlow 1 that were started without ``--tf1``."""

from __future__ import annotations

import re
import sys
from types import TracebackType

_MISSING = re.compile(r"module 'tensorflow[\w.]*' has no attribute '(\w+)'")
_HINT = (
    "hint: {name} belongs to TensorFlow 1; start the job with `sirtaki run --horovod --tf1`, "
    "which makes `import tensorflow` mean TensorFlow 1"
)


def hint_for(error: BaseException) -> str | None:
    """What to do if the error is about a name that only TensorFlow 1 has."""
    found = isinstance(error, AttributeError) and _MISSING.search(str(error))
    if not found or "sirtaki_tf1" in sys.modules or "tensorflow" not in sys.modules:
        return None
    from tensorflow.compat import v1

    name = found.group(1)
    return _HINT.format(name=f"tf.{name}") if hasattr(v1, name) else None


def install() -> None:
    """Adds the hint to the traceback of an exception that ends the program."""
    before = sys.excepthook

    def excepthook(
        kind: type[BaseException], error: BaseException, traceback: TracebackType | None
    ) -> None:
        before(kind, error, traceback)
        hint = hint_for(error)
        if hint is not None:
            print(hint, file=sys.stderr)

    sys.excepthook = excepthook
