"""Lightning: how far its ``Trainer`` is, for the launcher, its dashboard and the run's folder.

For ``lightning`` and for ``pytorch_lightning``, whichever the program has imported. docs/
from-lightning.md says how the ``Trainer`` uses Sirtaki to reduce gradients.
"""

from __future__ import annotations

import importlib
import math
import sys
from typing import Any

from sirtaki import _progress
from sirtaki._core import job

__all__ = ["ProgressCallback"]

_NAMES = ("lightning.pytorch", "pytorch_lightning")


def _find() -> Any:
    imported = [name for name in _NAMES if name in sys.modules]
    for name in imported or _NAMES:
        try:
            return importlib.import_module(name)
        except ModuleNotFoundError as error:
            if error.name != name.partition(".")[0]:
                raise
    raise ImportError(
        "sirtaki.lightning needs the package lightning or pytorch_lightning\n"
        "hint: pip install lightning"
    )


_library: Any = _find()


class ProgressCallback(_library.Callback):
    """Reports how far training is, for ``Trainer(callbacks=[ProgressCallback()])``.

    Loss is what ``training_step`` returns. Accuracy and what was found in validation are those
    that the module logs under names like ``train_acc``, ``val_loss`` and ``val/accuracy``.
    """

    def __init__(self) -> None:  # noqa: D107
        super().__init__()
        self._pace = _progress.Pace()
        self._loss: Any = None
        self._batch = 0

    def on_fit_start(self, trainer: Any, pl_module: Any) -> None:
        """Joins the job, unless the strategy has done so."""
        job.start()

    def on_train_batch_end(
        self, trainer: Any, pl_module: Any, outputs: Any, batch: Any, batch_idx: int
    ) -> None:
        """Reports from time to time."""
        loss = outputs.get("loss") if isinstance(outputs, dict) else outputs
        if loss is not None:
            # Lightning has divided it by the number of batches whose gradients are summed.
            self._loss = loss.detach() * trainer.accumulate_grad_batches
        self._batch = batch_idx + 1
        if self._pace.is_due():
            self._report(trainer)

    def on_validation_end(self, trainer: Any, pl_module: Any) -> None:
        """Reports what was found."""
        if not trainer.sanity_checking:
            metrics = trainer.callback_metrics
            self._report(
                trainer,
                test_loss=_metric(metrics, True, ("loss",)),
                test_accuracy=_metric(metrics, True, ("accuracy", "acc")),
            )

    def on_train_end(self, trainer: Any, pl_module: Any) -> None:
        """Reports the last step."""
        self._batch = 0
        self._report(trainer)

    def _report(self, trainer: Any, **test: Any) -> None:
        steps, batches = trainer.estimated_stepping_batches, trainer.num_training_batches
        epochs, part = trainer.max_epochs, 0.0
        if math.isfinite(batches) and batches > 0:
            part = self._batch / batches
        _progress.progress(
            trainer.global_step,
            int(steps) if math.isfinite(steps) and steps > 0 else None,
            epoch=trainer.current_epoch + part,
            epochs=epochs if epochs and epochs > 0 else None,
            loss=self._loss,
            accuracy=_metric(trainer.callback_metrics, False, ("accuracy", "acc")),
            **test,
        )


def _metric(metrics: Any, of_test: bool, ends: tuple[str, ...]) -> Any:
    """The first metric of training or of validation whose name ends like this."""
    for name, value in metrics.items():
        words = name.lower().replace("/", "_").split("_")
        is_test = words[0] in ("val", "valid", "validation", "test")
        if is_test == of_test and words[-1] in ends:
            return value
    return None
