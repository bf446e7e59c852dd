"""Being told when a gradient is complete or an optimizer steps, in every version of PyTorch."""

from __future__ import annotations

from typing import Any, Callable

import torch
from torch.optim import optimizer as _optimizer


def when_accumulated(parameter: torch.Tensor, hook: Callable[[torch.Tensor], None]) -> Any:
    """Calls ``hook(parameter)`` each time a backward pass has added to its gradient.

    Keep what is returned; ``remove()`` on it ends the calls.
    """
    if hasattr(parameter, "register_post_accumulate_grad_hook"):
        return parameter.register_post_accumulate_grad_hook(hook)
    # Before PyTorch 2.1: a hook behind the node that accumulates, found through a view.
    accumulate = parameter.expand_as(parameter).grad_fn.next_functions[0][0]
    return _Kept(accumulate, accumulate.register_hook(lambda *_: hook(parameter)))


def at_end_of_backward(call: Callable[[], None]) -> None:
    """Calls a function when the backward pass in progress has computed everything."""
    torch.autograd.Variable._execution_engine.queue_callback(call)


def around_steps(before: Callable[[], None], after: Callable[[], None]) -> bool:
    """Calls these around the steps of all optimizers of this process.

    Returns false where PyTorch cannot do that, which is before 2.0.
    """
    if not hasattr(_optimizer, "register_optimizer_step_pre_hook"):
        return False
    _optimizer.register_optimizer_step_pre_hook(lambda *_: before())
    _optimizer.register_optimizer_step_post_hook(lambda *_: after())
    return True


class _Kept:
    """Keeps a node alive, and with it the node's hooks."""

    def __init__(self, node: Any, registered: Any) -> None:
        self._node, self._registered = node, registered

    def remove(self) -> None:
        self._registered.remove()
        self._node = None
