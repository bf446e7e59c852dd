"""What a parameter could have been, as Optuna describes it."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

__all__ = [
    "BaseDistribution",
    "CategoricalDistribution",
    "FloatDistribution",
    "IntDistribution",
]


class BaseDistribution:
    """Any of them."""

    def domain(self) -> dict[str, Any]:
        """It as a study's file has it."""
        raise NotImplementedError

    def __eq__(self, other: object) -> bool:
        """Whether both describe the same values."""
        return type(self) is type(other) and self.__dict__ == other.__dict__

    def __hash__(self) -> int:
        """As equality demands."""
        return hash(repr(self))

    def __repr__(self) -> str:
        """As it is written in Python."""
        fields = ", ".join(f"{name}={value!r}" for name, value in self.__dict__.items())
        return f"{type(self).__name__}({fields})"


class FloatDistribution(BaseDistribution):
    """Real numbers."""

    def __init__(
        self, low: float, high: float, log: bool = False, step: float | None = None
    ) -> None:
        """With these bounds."""
        self.low, self.high, self.log, self.step = float(low), float(high), log, step

    def domain(self) -> dict[str, Any]:
        """It as a study's file has it."""
        found: dict[str, Any] = {"log" if self.log else "float": [self.low, self.high]}
        return found if self.step is None else {**found, "step": self.step}


class IntDistribution(BaseDistribution):
    """Whole numbers."""

    def __init__(self, low: int, high: int, log: bool = False, step: int = 1) -> None:
        """With these bounds."""
        self.low, self.high, self.log, self.step = int(low), int(high), log, int(step)

    def domain(self) -> dict[str, Any]:
        """It as a study's file has it."""
        found: dict[str, Any] = {"logint" if self.log else "int": [self.low, self.high]}
        return found if self.step == 1 else {**found, "step": self.step}


class CategoricalDistribution(BaseDistribution):
    """One of a few things."""

    def __init__(self, choices: Sequence[Any]) -> None:
        """With these bounds."""
        self.choices = tuple(choices)

    def domain(self) -> dict[str, Any]:
        """It as a study's file has it."""
        for choice in self.choices:
            if choice is not None and not isinstance(choice, (str, bool, int, float)):
                raise ValueError(
                    f"{choice!r} cannot be written into a journal\n"
                    "hint: choose among texts, numbers, booleans and None, such as names"
                )
        return {"choice": list(self.choices)}
