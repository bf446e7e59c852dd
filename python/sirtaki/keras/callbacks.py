"""Callbacks for ``model.fit`` on several ranks."""

from __future__ import annotations

import time
from typing import Any, Callable

from sirtaki import _progress
from sirtaki._core.job import rank, round_number
from sirtaki._core.objects import allgather_object
from sirtaki.keras import _variables, operations
from sirtaki.keras._library import IS_3, keras
from sirtaki.keras.rates import LearningRateScheduleCallback, LearningRateWarmupCallback

__all__ = [
    "BestModelCheckpoint",
    "BroadcastGlobalVariablesCallback",
    "LearningRateScheduleCallback",
    "LearningRateWarmupCallback",
    "MetricAverageCallback",
    "ProgressCallback",
]


class BroadcastGlobalVariablesCallback(keras.callbacks.Callback):
    """Gives all ranks the variables of ``root_rank``, of the model and of its optimizer.

    At the start if the model knows its shapes by then, as most do with Keras 3; otherwise after
    the first batch. Ranks that have come together again do it once more.
    Those in ``local_variables`` stay as they are.
    """

    def __init__(self, root_rank: int, device: str = "", local_variables: Any = None) -> None:  # noqa: D107
        super().__init__()
        self.root_rank, self.broadcast_done, self._round = root_rank, False, 0
        self._local = {id(variable) for variable in local_variables or ()}

    def register_local_var(self, var: Any) -> None:
        """Leaves this variable as it is."""
        self._local.add(id(var))

    def on_train_begin(self, logs: Any = None) -> None:
        """Gives all ranks the same variables, if they are there."""
        if self._round != round_number():
            self.broadcast_done, self._round = False, round_number()
        if not IS_3 or self.broadcast_done:
            return
        model = self.model
        optimizer = getattr(model, "optimizer", None)
        if all(allgather_object(bool(model.built), "keras.ready")):
            if optimizer is not None:
                _variables.build(optimizer, model.trainable_variables)
            self._broadcast()

    def on_train_batch_end(self, batch: int, logs: Any = None) -> None:
        """Gives all ranks the same variables after the first batch."""
        if not self.broadcast_done:
            self._broadcast()

    def _broadcast(self) -> None:
        self.broadcast_done = True
        if not IS_3 and _in_graph():
            operations.broadcast_global_variables(self.root_rank)
            return
        model = self.model
        variables = [one for one in _variables.of_model(model) if id(one) not in self._local]
        _variables.broadcast(variables, self.root_rank, "model")
        optimizer = getattr(model, "optimizer", None)
        if optimizer is not None:
            _variables.broadcast(_variables.of_optimizer(optimizer), self.root_rank, "optimizer")


def _in_graph() -> bool:
    """Whether TensorFlow builds a graph, as in version 1, instead of computing at once."""
    import tensorflow as tf

    return not tf.executing_eagerly()


class MetricAverageCallback(keras.callbacks.Callback):
    """Replaces the metrics of an epoch by their averages over the ranks that have them.

    Put it before callbacks that use metrics, so that these decide alike on all ranks.
    """

    def __init__(self, device: str = "") -> None:  # noqa: D107
        super().__init__()

    def on_epoch_end(self, epoch: int, logs: Any = None) -> None:
        """Averages the metrics."""
        logs = {} if logs is None else logs
        own = {name: float(value) for name, value in logs.items() if _is_number(value)}
        everybody = allgather_object(own, "keras.metrics")
        for name in own:
            values = [metrics[name] for metrics in everybody if name in metrics]
            logs[name] = sum(values) / len(values)


def _is_number(value: Any) -> bool:
    try:
        float(value)
    except (TypeError, ValueError):
        return False
    return True


class BestModelCheckpoint(keras.callbacks.ModelCheckpoint):
    """Rank 0 saves the model whenever it is better than before.

    ``filepath`` can also be set later, before training starts.
    """

    def __init__(  # noqa: D107
        self,
        monitor: str = "val_loss",
        verbose: int = 0,
        mode: str = "auto",
        save_freq: Any = "epoch",
        filepath: Any = None,
    ) -> None:
        super().__init__(
            filepath="best.keras" if filepath is None else filepath,
            monitor=monitor,
            verbose=verbose,
            save_best_only=True,
            save_weights_only=False,
            mode=mode,
            save_freq=save_freq,
        )
        if filepath is None:
            self.filepath = None

    def on_train_begin(self, logs: Any = None) -> None:
        """Checks that there is a place for the model."""
        if self.filepath is None:
            raise ValueError(
                "BestModelCheckpoint does not know where to save the model\n"
                'hint: give it filepath="best.keras", or set its attribute filepath'
            )
        super().on_train_begin(logs)

    def _save_model(self, *args: Any, **kwargs: Any) -> None:
        if rank() == 0:
            super()._save_model(*args, **kwargs)


class ProgressCallback(keras.callbacks.Callback):
    """Reports how far training is, for the terminal and the dashboard of ``sirtaki run``."""

    async_safe = True

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:  # noqa: D107
        super().__init__()
        self._clock, self._next, self._done, self._epoch = clock, 0.0, 0, 0
        self._test: dict[str, Any] = {}

    def on_epoch_begin(self, epoch: int, logs: Any = None) -> None:
        """Notes which epoch this is."""
        self._epoch = epoch

    def on_train_batch_end(self, batch: int, logs: Any = None) -> None:
        """Reports from time to time."""
        self._done += 1
        now = self._clock()
        if now >= self._next:
            self._next = now + _progress.PAUSE
            steps = self.params.get("steps")
            part = (batch + 1) / steps if steps else 0.0
            self._report(self._epoch + min(part, 1.0), logs)

    def on_epoch_end(self, epoch: int, logs: Any = None) -> None:
        """Reports what was learned in the epoch."""
        logs = logs or {}
        self._test = {"test_loss": logs.get("val_loss"), "test_accuracy": _accuracy(logs, "val_")}
        self._report(epoch + 1.0, logs)

    def _report(self, epoch: float, logs: Any) -> None:
        steps, epochs = self.params.get("steps"), self.params.get("epochs")
        logs = logs or {}
        _progress.progress(
            self._done,
            steps * epochs if steps and epochs else None,
            epoch=epoch,
            epochs=epochs,
            loss=logs.get("loss"),
            accuracy=_accuracy(logs),
            **self._test,
        )


def _accuracy(logs: Any, prefix: str = "") -> Any:
    found = (
        logs.get(prefix + name) for name in ("accuracy", "acc", "sparse_categorical_accuracy")
    )
    return next((value for value in found if value is not None), None)
