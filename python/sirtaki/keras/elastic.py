"""Training with Keras that goes on after a failure."""

from __future__ import annotations

from typing import Any

from sirtaki._core.elastic import ObjectState, run
from sirtaki._core.job import rank
from sirtaki._core.objects import broadcast_object
from sirtaki.keras import _variables
from sirtaki.keras._library import keras

__all__ = [
    "CommitStateCallback",
    "KerasState",
    "UpdateBatchStateCallback",
    "UpdateEpochStateCallback",
    "run",
]


class KerasState(ObjectState):
    """The variables of a model and of its optimizer, and further attributes.

    >>> import keras, sirtaki.keras as hvd
    >>> hvd.init()
    >>> model = keras.Sequential([keras.Input((2,)), keras.layers.Dense(1)])
    >>> state = hvd.elastic.KerasState(model, keras.optimizers.SGD(), epoch=0)
    >>> state.epoch = 3
    >>> state.restore()
    >>> state.epoch
    0
    """

    def __init__(self, model: Any, optimizer: Any = None, **kwargs: Any) -> None:  # noqa: D107
        self.model = model
        self.optimizer = optimizer if optimizer is not None else getattr(model, "optimizer", None)
        self._saved = self._values()
        super().__init__(broadcast_object, rank, **kwargs)

    def _lists(self) -> list[list[Any]]:
        of_optimizer = [] if self.optimizer is None else _variables.of_optimizer(self.optimizer)
        return [list(self.model.variables), of_optimizer]

    def _values(self) -> list[list[Any]]:
        return [[_variables.value_of(one) for one in some] for some in self._lists()]

    def save(self) -> None:
        """Keeps a copy of everything."""
        self._saved = self._values()
        super().save()

    def restore(self) -> None:
        """Takes back what was saved last."""
        self._assign()
        super().restore()

    def sync(self) -> None:
        """Gives all ranks the state of rank 0."""
        self._saved = broadcast_object(self._values(), name="keras.state")
        self._assign()
        super().sync()

    def _assign(self) -> None:
        """What a model or an optimizer has got only since then keeps its value."""
        for variables, values in zip(self._lists(), self._saved):
            for variable, value in zip(variables, values):
                variable.assign(value)


class CommitStateCallback(keras.callbacks.Callback):
    """Commits the state every ``batches_per_commit`` batches and after every epoch."""

    def __init__(self, state: Any, batches_per_commit: int = 1) -> None:  # noqa: D107
        super().__init__()
        self.state, self.batches_per_commit = state, batches_per_commit
        self.batches_remaining = batches_per_commit

    def on_train_begin(self, logs: Any = None) -> None:
        """Counts from here, on all ranks."""
        self.batches_remaining = self.batches_per_commit

    def on_train_batch_end(self, batch: int, logs: Any = None) -> None:
        """Commits if it is time."""
        self.batches_remaining -= 1
        if self.batches_remaining == 0:
            self.batches_remaining = self.batches_per_commit
            self._commit()

    def on_epoch_end(self, epoch: int, logs: Any = None) -> None:
        """Commits."""
        self._commit()

    def _commit(self) -> None:
        # On JAX, asking for the model makes its variables current.
        self.model  # noqa: B018
        self.state.commit()


class UpdateBatchStateCallback(keras.callbacks.Callback):
    """Keeps the number of the batch in ``state.batch``; an epoch that is resumed has fewer."""

    def __init__(self, state: Any) -> None:  # noqa: D107
        super().__init__()
        self.state, self.steps_per_epoch = state, None

    def on_train_begin(self, logs: Any = None) -> None:
        """Counts from here, on all ranks."""
        self.steps_per_epoch = None

    def on_epoch_begin(self, epoch: int, logs: Any = None) -> None:
        """Shortens the first epoch by what was done of it before."""
        if self.params.get("steps"):
            if self.steps_per_epoch is None:
                self.steps_per_epoch = self.params["steps"]
            self.params["steps"] = self.steps_per_epoch - self.state.batch

    def on_train_batch_end(self, batch: int, logs: Any = None) -> None:
        """Notes the number of the batch."""
        self.state.batch = batch

    def on_epoch_end(self, epoch: int, logs: Any = None) -> None:
        """The next epoch starts with its first batch."""
        self.state.batch = 0


class UpdateEpochStateCallback(keras.callbacks.Callback):
    """Keeps the number of finished epochs in ``state.epoch``, also when training is resumed."""

    def __init__(self, state: Any) -> None:  # noqa: D107
        super().__init__()
        self.state, self.initial_epoch = state, state.epoch

    def on_train_begin(self, logs: Any = None) -> None:
        """Counts from the epoch that is resumed."""
        self.initial_epoch = self.state.epoch

    def on_epoch_end(self, epoch: int, logs: Any = None) -> None:
        """Counts the epoch."""
        self.state.epoch = self.initial_epoch + epoch + 1
