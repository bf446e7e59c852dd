"""Weights & Biases and MLflow as listeners of what a program reports.

``SIRTAKI_TRACKERS=wandb,mlflow`` names them; rank 0 passes on what it reports. A run that the
program has begun itself is used and left open; otherwise there is one for the job.
"""

from __future__ import annotations

import importlib
import os
from typing import Any

VARIABLE = "SIRTAKI_TRACKERS"


class _Wandb:
    def __init__(self, library: Any) -> None:
        self._own = library.run is None
        self._run = library.init() if self._own else library.run

    def settings(self, settings: dict[str, Any]) -> None:
        self._run.config.update(settings, allow_val_change=True)

    def values(self, step: int, values: dict[str, float]) -> None:
        self._run.log(values, step=step)

    def close(self) -> None:
        if self._own:
            self._run.finish()


class _Mlflow:
    def __init__(self, library: Any) -> None:
        self._library, self._own = library, library.active_run() is None
        self._told: set[str] = set()
        if self._own:
            library.start_run()

    def settings(self, settings: dict[str, Any]) -> None:
        # It refuses to replace a value.
        new = {name: value for name, value in settings.items() if name not in self._told}
        self._library.log_params(new)
        self._told.update(new)

    def values(self, step: int, values: dict[str, float]) -> None:
        self._library.log_metrics(values, step=step)

    def close(self) -> None:
        if self._own:
            self._library.end_run()


_KINDS: dict[str, Any] = {"wandb": _Wandb, "mlflow": _Mlflow}


def find(wanted: str | None = None) -> list[Any]:
    """The trackers that the variable names, ready to be told something."""
    text = os.environ.get(VARIABLE, "") if wanted is None else wanted
    return [_start(name.strip()) for name in text.split(",") if name.strip()]


def _start(name: str) -> Any:
    kind = _KINDS.get(name)
    if kind is None:
        raise ValueError(
            f"{VARIABLE} has `{name}`, but only {' and '.join(_KINDS)} are known\n"
            f"hint: {VARIABLE}=wandb, or several with commas between them"
        )
    try:
        library = importlib.import_module(name)
    except ModuleNotFoundError as error:
        if error.name != name:
            raise
        raise ImportError(
            f"{VARIABLE} asks for {name}, which is not installed\nhint: pip install {name}"
        ) from None
    return kind(library)
