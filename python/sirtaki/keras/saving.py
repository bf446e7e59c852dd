"""Models from files, with optimizers that reduce gradients."""

from __future__ import annotations

from typing import Any

from sirtaki.keras._library import keras
from sirtaki.keras.compression import Compression
from sirtaki.keras.optimizer import DistributedOptimizer, is_distributed


def load_model(
    filepath: Any,
    custom_optimizers: Any = None,
    custom_objects: Any = None,
    compression: Any = Compression.none,
    legacy_opts: bool = False,
    **settings: Any,
) -> Any:
    """A saved model with a ``DistributedOptimizer`` that has the state of the saved one.

    ``custom_optimizers`` are classes that Keras does not know; further arguments go to
    ``DistributedOptimizer``.

    >>> import tempfile, keras, sirtaki.keras as hvd
    >>> hvd.init()
    >>> model = keras.Sequential([keras.Input((2,)), keras.layers.Dense(1)])
    >>> model.compile(optimizer=hvd.DistributedOptimizer(keras.optimizers.SGD()), loss="mse")
    >>> with tempfile.NamedTemporaryFile(suffix=".keras") as file:
    ...     model.save(file.name)
    ...     model = hvd.load_model(file.name)
    """
    known = {kind.__name__: kind for kind in custom_optimizers or ()}
    known.update(custom_objects or {})
    model = keras.models.load_model(filepath, custom_objects=known or None)
    optimizer = getattr(model, "optimizer", None)
    if optimizer is not None and not is_distributed(optimizer):
        DistributedOptimizer(optimizer, compression=compression, **settings)
    return model
