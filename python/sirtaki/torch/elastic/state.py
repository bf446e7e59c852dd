"""State of PyTorch: models, optimizers and samplers, each handled in its own way."""

from __future__ import annotations

from typing import Any

import torch

from sirtaki._core.handlers import HandledState, SamplerStateHandler, StateHandler
from sirtaki.torch.elastic.sampler import ElasticSampler
from sirtaki.torch.functions import broadcast_optimizer_state, broadcast_parameters


class ModelStateHandler(StateHandler):
    """Parameters and buffers of a model."""

    def __init__(self, model: torch.nn.Module) -> None:  # noqa: D107
        super().__init__(model)

    def sync(self) -> None:
        """Gives all ranks the model of rank 0."""
        broadcast_parameters(self.value.state_dict(), root_rank=0)
        self.save()


class OptimizerStateHandler(StateHandler):
    """State and options of an optimizer."""

    def __init__(self, optimizer: torch.optim.Optimizer) -> None:  # noqa: D107
        super().__init__(optimizer)

    def sync(self) -> None:
        """Gives all ranks the state of rank 0. A step that is not complete begins again."""
        if getattr(self.value, "backward_passes_per_step", 1) > 1:
            # Loading makes all ranks, also rank 0, count passes from the first one again.
            self.value.load_state_dict(self.value.state_dict())
            self.value.zero_grad()
        broadcast_optimizer_state(self.value, root_rank=0)
        self.save()


_registry: list[tuple[type, type[StateHandler]]] = [
    (torch.nn.Module, ModelStateHandler),
    (torch.optim.Optimizer, OptimizerStateHandler),
    (ElasticSampler, SamplerStateHandler),
]


def get_handler_registry() -> list[tuple[type, type[StateHandler]]]:
    """Which types have their own handlers, and which handlers these are."""
    return _registry


def set_handler_registry(registry: list[tuple[type, type[StateHandler]]]) -> None:
    """Replaces what ``get_handler_registry`` returns."""
    global _registry  # noqa: PLW0603
    _registry = registry


def _handler(value: Any) -> StateHandler | None:
    for kind, handler in _registry:
        if isinstance(value, kind):
            return handler(value)
    return None


class TorchState(HandledState):
    """Model, optimizer, samplers and any other values, as attributes.

    >>> import torch, sirtaki.torch as hvd
    >>> hvd.init()
    >>> state = hvd.elastic.TorchState(torch.nn.Linear(2, 1), epoch=0)
    >>> state.epoch = 4
    >>> state.restore()
    >>> state.epoch
    0
    """

    def __init__(  # noqa: D107
        self,
        model: torch.nn.Module | None = None,
        optimizer: torch.optim.Optimizer | None = None,
        **kwargs: Any,
    ) -> None:
        given = {"model": model, "optimizer": optimizer}
        present = {name: value for name, value in given.items() if value is not None}
        super().__init__(_handler, **present, **kwargs)
