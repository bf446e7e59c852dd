"""Callbacks that change the learning rate.

When it changes, momentum has to be corrected (Goyal et al., 2017): what an optimizer remembers of
earlier steps was scaled by the earlier rate. Here that memory itself is rescaled, because Keras
compiles the number of the momentum into the training step.
"""

from __future__ import annotations

from typing import Any, Callable, Union

from sirtaki._core.job import rank, size
from sirtaki.keras._library import keras
from sirtaki.keras._variables import of_optimizer, short, value_of

Multiplier = Union[float, Callable[[float], float]]


class LearningRateScheduleCallback(keras.callbacks.Callback):
    """The learning rate is ``initial_lr`` times ``multiplier``, from one epoch to another.

    The multiplier is a function of the epoch, or a number, for exponential decay per epoch. With
    ``staircase`` the rate changes once per epoch, otherwise with every batch.
    """

    def __init__(  # noqa: D107
        self,
        initial_lr: float,
        multiplier: Multiplier,
        start_epoch: int = 0,
        end_epoch: int | None = None,
        staircase: bool = True,
        momentum_correction: bool = True,
        steps_per_epoch: int | None = None,
    ) -> None:
        super().__init__()
        if initial_lr is None:
            raise ValueError("initial_lr is needed")
        self.initial_lr, self.staircase = initial_lr, staircase
        self.start_epoch, self.end_epoch = start_epoch, end_epoch
        self.momentum_correction, self.steps_per_epoch = momentum_correction, steps_per_epoch
        self.current_epoch = 0
        if callable(multiplier):
            self.multiplier = multiplier
        else:
            self.multiplier = lambda epoch: multiplier ** (epoch - start_epoch)

    def on_train_begin(self, logs: Any = None) -> None:
        """Finds out how many batches an epoch has, if that matters."""
        if self.staircase or self.steps_per_epoch:
            return
        self.steps_per_epoch = self.params.get("steps")
        if not self.steps_per_epoch:
            raise ValueError(
                "the number of batches per epoch is not known\n"
                f"hint: give {type(self).__name__} steps_per_epoch"
            )

    def on_epoch_begin(self, epoch: int, logs: Any = None) -> None:
        """Notes which epoch this is."""
        self.current_epoch = epoch

    def on_train_batch_begin(self, batch: int, logs: Any = None) -> None:
        """Sets the rate if it is time."""
        epoch, end = self.current_epoch, self.end_epoch
        if epoch < self.start_epoch or (end is not None and epoch >= end):
            return
        if not self.staircase:
            self._adjust(epoch + batch / self.steps_per_epoch)  # type: ignore[operator]
        elif batch == 0:
            self._adjust(epoch)

    def on_epoch_end(self, epoch: int, logs: Any = None) -> None:
        """Adds the rate to the metrics."""
        if logs is not None:
            logs["lr"] = self._rate()

    def _rate(self) -> float:
        return float(value_of(self.model.optimizer.learning_rate))

    def _adjust(self, epoch: float) -> None:
        optimizer = self.model.optimizer
        old, new = self._rate(), self.initial_lr * self.multiplier(epoch)
        try:
            optimizer.learning_rate = new
        except TypeError as error:
            raise TypeError(
                f"{type(self).__name__} cannot change a learning rate that is a schedule itself\n"
                "hint: give the optimizer a number, or leave this callback out"
            ) from error
        if (
            self.momentum_correction
            and getattr(optimizer, "momentum", None)
            and old
            and new != old
        ):
            for variable in _memory(optimizer):
                value = value_of(variable)
                variable.assign((value * (new / old)).astype(value.dtype))


def _memory(optimizer: Any) -> list[Any]:
    """What an optimizer with momentum remembers of earlier steps, in any version of Keras."""
    known = [*(getattr(optimizer, "momentums", None) or ()), *getattr(optimizer, "_momentums", ())]
    named = (one for one in of_optimizer(optimizer) if "momentum" in short(one))
    return [one for one in known if one is not None] or list(named)


class LearningRateWarmupCallback(LearningRateScheduleCallback):
    """Raises the learning rate from that of one rank to ``initial_lr``, over the first epochs.

    ``initial_lr`` is the rate for all ranks: that for one, times their number.
    """

    def __init__(  # noqa: D107
        self,
        initial_lr: float,
        warmup_epochs: int = 5,
        momentum_correction: bool = True,
        steps_per_epoch: int | None = None,
        verbose: int = 0,
    ) -> None:
        def multiplier(epoch: float) -> float:
            # The last batch of an epoch reaches a round number.
            epoch += 1.0 / self.steps_per_epoch  # type: ignore[operator]
            return (epoch * (size() - 1) / warmup_epochs + 1) / size()

        super().__init__(
            initial_lr, multiplier, 0, warmup_epochs, False, momentum_correction, steps_per_epoch
        )
        self.verbose = verbose

    def on_epoch_end(self, epoch: int, logs: Any = None) -> None:
        """Says on rank 0 that the rate has reached its goal, if that was asked for."""
        super().on_epoch_end(epoch, logs)
        if self.verbose and epoch + 1 == self.end_epoch and rank() == 0:
            print(f"\nEpoch {epoch + 1}: the learning rate is warm, {self._rate():g}.")
