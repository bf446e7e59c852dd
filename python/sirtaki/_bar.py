"""A bar in a cell of a notebook that shows how far a job is."""

from __future__ import annotations

import html
import sys
from typing import Any


def in_notebook() -> bool:
    """Whether this is the kernel of a notebook. IPython in a terminal is none."""
    ipython = sys.modules.get("IPython")
    shell = ipython.get_ipython() if ipython is not None else None
    return getattr(shell, "kernel", None) is not None


class Bar:
    """Appears with the first report and is replaced by every later one."""

    def __init__(self) -> None:
        self._shown: Any = None

    def show(self, moment: dict[str, Any]) -> None:
        """Shows what the launcher knows of the job."""
        from IPython.display import display

        text = words(moment)
        share = done(moment["said"])
        value = "" if share is None else f' value="{share:.4f}"'
        page = f'<progress max="1"{value}></progress> {html.escape(text)}'
        data = {"text/plain": text, "text/html": page}
        if self._shown is None:
            self._shown = display(data, raw=True, display_id=True)
        else:
            self._shown.update(data, raw=True)


def done(said: dict[str, Any]) -> float | None:
    """The share of the job that is done."""
    if said.get("steps"):
        return min(said["step"] / said["steps"], 1.0)
    if said.get("epochs") and said.get("epoch") is not None:
        return min(said["epoch"] / said["epochs"], 1.0)
    return None


def words(moment: dict[str, Any]) -> str:
    """A line that says how far the job is.

    >>> said = {"step": 50, "steps": 100, "loss": 0.25, "test_accuracy": 0.9}
    >>> words({"said": said, "left": 10.2, "steps_per_second": 5.0})
    'step 50/100  10 s left  5 steps/s  loss 0.25  test accuracy 90.0 %'
    """
    said = moment["said"]
    parts = []
    if said.get("epoch") is not None:
        parts.append(f"epoch {said['epoch']:.3g}{_of(said.get('epochs'))}")
    parts.append(f"step {said['step']}{_of(said.get('steps'))}")
    if moment.get("left") is not None:
        parts.append(f"{moment['left']:.0f} s left")
    if moment.get("steps_per_second") is not None:
        parts.append(f"{moment['steps_per_second']:.3g} steps/s")
    for name in ("loss", "accuracy", "test_loss", "test_accuracy"):
        value = said.get(name)
        if value is not None:
            is_share = name.endswith("accuracy")
            number = f"{100 * value:.1f} %" if is_share else f"{value:.4g}"
            parts.append(f"{name.replace('_', ' ')} {number}")
    return "  ".join(parts)


def _of(all_of_them: Any) -> str:
    return "" if all_of_them is None else f"/{all_of_them}"
