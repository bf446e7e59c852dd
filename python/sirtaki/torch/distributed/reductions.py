"""PyTorch's reductions: those the engine has, and those made from a gather."""

from __future__ import annotations

from functools import reduce
from typing import Any, Callable

import torch
from torch.distributed import ReduceOp

from sirtaki.torch import _memory

_WORDS = {"SUM": "sum", "AVG": "average", "MIN": "min", "MAX": "max", "PRODUCT": "product"}
_BITWISE = {
    "BAND": torch.bitwise_and,
    "BOR": torch.bitwise_or,
    "BXOR": torch.bitwise_xor,
}
_OPS = {
    name: getattr(ReduceOp, name)
    for name in (*_WORDS, *_BITWISE, "PREMUL_SUM")
    if hasattr(ReduceOp, name)
}
"""Those that this version of PyTorch has."""


class Reduction:
    """A reduction in the engine's terms, for an element type.

    ``fold`` is set where the engine has none: then it makes one tensor of the rows of all ranks.
    """

    def __init__(self, op: Any, dtype: torch.dtype) -> None:  # noqa: D107
        self.name = _name(op)
        self.word, self.before = _WORDS.get(self.name), 1.0
        self.fold: Callable[[torch.Tensor], torch.Tensor] | None = None
        if self.name == "PREMUL_SUM":
            self.word, self.before = "sum", _factor(op)
        elif self.name in _BITWISE:
            self._fold_bits(dtype)
        if self.word is None and self.fold is None:
            raise ValueError(f"the reduction {self.name} is unknown here\nhint: use ReduceOp.SUM")
        if self.word and not dtype.is_complex and not _memory.reducible(dtype):
            raise ValueError(
                f"{self.name} of {dtype} is not supported\n"
                "hint: convert the tensor to a larger type, such as int32 or float32"
            )
        if dtype.is_complex and self.word not in ("sum", "average"):
            raise ValueError(
                f"{self.name} of complex numbers is not defined\nhint: use ReduceOp.SUM or AVG"
            )

    def _fold_bits(self, dtype: torch.dtype) -> None:
        if dtype.is_floating_point or dtype.is_complex:
            raise ValueError(
                f"{self.name} combines bits of integers, not of {dtype}\n"
                "hint: view the tensor as integers of the same size"
            )
        bits = _BITWISE[self.name]
        self.fold = lambda rows: reduce(bits, rows.unbind(0))


def _name(op: Any) -> str:
    return next((name for name, known in _OPS.items() if op == known), str(op))


def _factor(op: Any) -> float:
    if hasattr(op, "factor"):
        return float(op.factor)
    # Before that, only pickling reveals it, and before PyTorch 2.0 nothing does.
    state = getattr(op, "__getstate__", lambda: None)()
    if not state:
        raise ValueError(
            f"PyTorch {torch.__version__} does not tell the factor of PREMUL_SUM\n"
            "hint: multiply the tensor and use ReduceOp.SUM"
        )
    return float(state[1])
