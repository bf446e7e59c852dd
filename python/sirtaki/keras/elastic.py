"""Training with Keras that goes on after a failure."""

from __future__ import annotations

from typing import Any

from sirtaki._core.elastic import CallAgain, ObjectState, run
from sirtaki._core.job import is_elastic, rank
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


UNBUILT = (
    "the model has no variables yet, so it cannot get those of other workers\n"
    "hint: begin it with keras.Input(shape), or call model.build(input_shape), before training"
)

REST_IS_DONE = "what was left of an epoch is done"
"""A reason to stop training that is true, and different from those of other callbacks."""


class KerasState(ObjectState):
    """The variables of a model and of its optimizer, and further attributes.

    When ranks come together, the model has to have its variables on all of them.

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
        self._build()
        self._saved = broadcast_object(self._values(), name="keras.state")
        self._assign()
        super().sync()

    def _build(self) -> None:
        """Makes variables that others may have already."""
        if not getattr(self.model, "built", True):
            if is_elastic():
                raise ValueError(UNBUILT)
        elif self.optimizer is not None:
            _variables.build(self.optimizer, self.model.trainable_variables)

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
    """Keeps in ``state.batch`` how many batches of an epoch are done; ``fit`` then makes the rest.

    The rest is at least one batch, and Keras has to know how many batches an epoch has: from
    ``steps_per_epoch``, or from the data. Which batches these are depends on the data, of which
    ``fit`` takes the first ones. After the rest of an epoch, ``run`` calls the training function
    again, for the epochs from ``state.epoch`` on. Elsewhere, and without
    ``UpdateEpochStateCallback``, the same ``fit`` goes on; then data should have no end.
    """

    def __init__(self, state: Any) -> None:  # noqa: D107
        super().__init__()
        self.state = state
        self.steps_per_epoch: Any = None
        self._done = 0
        """Batches of this epoch that were done before."""
        self._epoch: Any = None

    def on_train_begin(self, logs: Any = None) -> None:
        """Counts from here, on all ranks."""
        self.steps_per_epoch, self._done = None, 0

    def on_epoch_begin(self, epoch: int, logs: Any = None) -> None:
        """Shortens the first epoch by what was done of it before."""
        finished = getattr(self.state, "epoch", None)
        if self._done and finished != self._epoch and getattr(self.state, "_is_run", False):
            # After an epoch that was stopped, Keras goes on in the middle of data that has an
            # end, and fails with a PyDataset.
            raise CallAgain
        self._epoch, self._done = finished, 0
        if self.params.get("steps"):
            if self.steps_per_epoch is None:
                self.steps_per_epoch = self.params["steps"]
            self._done = min(self.state.batch, self.steps_per_epoch - 1)
            # For progress bars. Keras itself goes by other numbers.
            self.params["steps"] = self.steps_per_epoch - self._done

    def on_train_batch_end(self, batch: int, logs: Any = None) -> None:
        """Counts the batch, and stops the epoch if it is the last one that was left."""
        self.state.batch = self._done + batch + 1
        is_last = self._done and self.state.batch >= self.steps_per_epoch
        # On JAX, asking for the model costs time, so this comes second.
        if is_last and not self.model.stop_training:
            self.model.stop_training = REST_IS_DONE

    def on_epoch_end(self, epoch: int, logs: Any = None) -> None:
        """The next epoch starts with its first batch."""
        self.state.batch = 0
        if self._done and self.model.stop_training == REST_IS_DONE:
            self.model.stop_training = False


class UpdateEpochStateCallback(keras.callbacks.Callback):
    """Keeps the number of finished epochs in ``state.epoch``, also when training is resumed.

    ``fit`` may count from ``initial_epoch=state.epoch``, or from zero with fewer ``epochs``.
    """

    def __init__(self, state: Any) -> None:  # noqa: D107
        super().__init__()
        self.state, self.initial_epoch = state, state.epoch
        self._first: int | None = None
        """The first epoch of this ``fit``."""

    def on_train_begin(self, logs: Any = None) -> None:
        """Counts from the epoch that is resumed."""
        self.initial_epoch, self._first = self.state.epoch, None

    def on_epoch_begin(self, epoch: int, logs: Any = None) -> None:
        """Notes from where Keras counts."""
        if self._first is None:
            self._first = epoch

    def on_epoch_end(self, epoch: int, logs: Any = None) -> None:
        """Counts the epoch."""
        self.state.epoch = self.initial_epoch + epoch - (self._first or 0) + 1
