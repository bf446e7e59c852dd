"""Keeps ``torch.compile`` away from methods that PyTorch calls from C++.

They are called in the middle of what is being compiled, such as the forward pass of DDP, and the
compiler would take them for part of it. The exclusion is marked on the functions' code objects,
because importing the compiler takes longer than most programs run without it.
"""

from __future__ import annotations

from types import FunctionType
from typing import Any

import torch


def run_eagerly(*classes: type) -> None:
    """Has the methods of classes, and whatever they call, run without being compiled."""
    compiler: Any = getattr(getattr(torch._C, "_dynamo", None), "eval_frame", None)
    codes = [
        method.__code__
        for cls in classes
        for method in vars(cls).values()
        if isinstance(method, FunctionType)
    ]
    if hasattr(compiler, "set_code_exec_strategy"):
        skip = compiler._FrameAction.SKIP
        for code in codes:
            compiler.set_code_exec_strategy(code, compiler._FrameExecStrategy(skip, skip))
    elif hasattr(compiler, "skip_code"):
        for code in codes:
            compiler.skip_code(code)
