"""``data_parallel`` for models of Keras: trains on all ranks, in one line."""

from __future__ import annotations

from typing import Any

from sirtaki._core.job import is_elastic
from sirtaki._core.process_sets import ProcessSet, global_process_set, init
from sirtaki.keras import _variables
from sirtaki.keras.callbacks import (
    BroadcastGlobalVariablesCallback,
    MetricAverageCallback,
    ProgressCallback,
)
from sirtaki.keras.compression import Compression
from sirtaki.keras.optimizer import DistributedOptimizer, is_distributed


class _DataParallel:
    """What is added to the class of a model."""

    _sirtaki: dict[str, Any]

    def compile(self, *args: Any, **kwargs: Any) -> Any:
        """Compiles the model, with an optimizer that reduces gradients."""
        result = super().compile(*args, **kwargs)  # type: ignore[misc]
        self._distribute()
        return result

    def fit(self, *args: Any, callbacks: Any = None, **kwargs: Any) -> Any:
        """Trains from the same start on all ranks, and averages metrics over them."""
        own = [BroadcastGlobalVariablesCallback(0), MetricAverageCallback(), ProgressCallback()]
        given = callbacks if isinstance(callbacks, (list, tuple)) else [callbacks]
        given = [callback for callback in given if callback is not None]
        return super().fit(*args, callbacks=[*own, *given], **kwargs)  # type: ignore[misc]

    def _distribute(self) -> None:
        optimizer = getattr(self, "optimizer", None)
        if optimizer is not None and not is_distributed(optimizer):
            DistributedOptimizer(optimizer, **self._sirtaki)


def data_parallel(
    model: Any, compression: Any = Compression.none, process_set: ProcessSet = global_process_set
) -> Any:
    """Trains a model of Keras on all ranks: everything else stays as for one process.

    Joins the job if this process has not done so and gives all ranks the variables of the first
    one; in an elastic job, the state's ``sync`` does that. ``compile`` and ``fit`` do the rest:
    gradients are averaged over the ranks, and so are metrics; progress is reported to the
    launcher. The data is what each rank gives to ``fit``.

    >>> import keras, numpy, sirtaki
    >>> model = keras.Sequential([keras.Input((2,)), keras.layers.Dense(1)])
    >>> model = sirtaki.data_parallel(model)
    >>> model.compile(optimizer="sgd", loss="mse")
    >>> history = model.fit(numpy.ones((4, 2)), numpy.ones((4, 1)), verbose=0)
    """
    init()
    kind = type(model)
    if not issubclass(kind, _DataParallel):
        about = {
            "__module__": kind.__module__,
            "__qualname__": kind.__qualname__,
            "__doc__": kind.__doc__,
            "_sirtaki": {"compression": compression, "process_set": process_set},
        }
        make: Any = type(kind)
        model.__class__ = make(kind.__name__, (_DataParallel, kind), about)
    model._distribute()
    if model.built and not is_elastic():
        _variables.broadcast(
            _variables.of_model(model), process_set.ranks[0], "model", process_set
        )
    return model
