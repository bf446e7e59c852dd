"""Hugging Face's Transformers: how far its ``Trainer`` is, for the launcher and the run's folder.

docs/from-accelerate.md says how the ``Trainer`` uses Sirtaki to reduce gradients.
"""

from __future__ import annotations

import math
from typing import Any

from sirtaki import _progress
from sirtaki._core import job

try:
    from transformers import TrainerCallback
except ModuleNotFoundError as error:
    if error.name != "transformers":
        raise
    raise ImportError(
        "sirtaki.transformers needs the package transformers\nhint: pip install transformers"
    ) from None

__all__ = ["ProgressCallback"]


class ProgressCallback(TrainerCallback):
    """Reports how far training is, for ``Trainer(callbacks=[ProgressCallback()])``.

    The loss is that which the ``Trainer`` logs, so it is as new as ``logging_steps`` says. What
    ``compute_metrics`` calls ``accuracy`` is the accuracy of tests.
    """

    def __init__(self) -> None:  # noqa: D107
        self._pace = _progress.Pace()
        self._loss: Any = None

    def on_train_begin(self, args: Any, state: Any, control: Any, **kwargs: Any) -> None:
        """Joins the job, unless the program has done so, and notes settings."""
        job.start()
        _progress.describe(
            batch_per_worker=args.train_batch_size * args.gradient_accumulation_steps,
            lr=args.learning_rate,
            epochs=args.num_train_epochs,
            seed=args.seed,
        )

    def on_step_end(self, args: Any, state: Any, control: Any, **kwargs: Any) -> None:
        """Reports from time to time."""
        if self._pace.is_due():
            self._report(args, state)

    def on_log(self, args: Any, state: Any, control: Any, logs: Any = None, **kwargs: Any) -> None:
        """Reports the loss."""
        if logs and "loss" in logs:
            self._loss = logs["loss"]
            self._report(args, state)

    def on_evaluate(
        self, args: Any, state: Any, control: Any, metrics: Any = None, **kwargs: Any
    ) -> None:
        """Reports what was found."""
        found = metrics or {}
        self._report(
            args,
            state,
            test_loss=found.get("eval_loss"),
            test_accuracy=found.get("eval_accuracy"),
        )

    def on_train_end(self, args: Any, state: Any, control: Any, **kwargs: Any) -> None:
        """Reports the last step."""
        self._report(args, state)

    def _report(self, args: Any, state: Any, **test: Any) -> None:
        if not job.is_initialized():
            # Tests without training.
            return
        batch = args.train_batch_size * args.gradient_accumulation_steps * args.world_size
        _progress.progress(
            state.global_step,
            state.max_steps or None,
            epoch=state.epoch,
            epochs=math.ceil(state.num_train_epochs) or None,
            samples=state.global_step * batch,
            loss=self._loss,
            **test,
        )
