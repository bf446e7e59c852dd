"""State of PyTorch: models, optimizers and samplers, each handled in its own way."""

from __future__ import annotations

import copy
from typing import Any

import torch

from sirtaki import _common
from sirtaki._elastic import ObjectState
from sirtaki.torch.elastic.sampler import ElasticSampler
from sirtaki.torch.functions import (
    broadcast_object,
    broadcast_optimizer_state,
    broadcast_parameters,
)


class StateHandler:
    """How one value is saved, restored and made equal on all ranks."""

    def __init__(self, value: Any) -> None:  # noqa: D107
        self.value = value
        self.save()

    def save(self) -> None:
        """Keeps a copy of its state."""
        self._saved = copy.deepcopy(self.value.state_dict())

    def restore(self) -> None:
        """Takes back what was saved last."""
        # Optimizers keep the tensors that they are given.
        self.value.load_state_dict(copy.deepcopy(self._saved))

    def sync(self) -> None:
        """Makes it equal on all ranks, and saves it."""
        raise NotImplementedError

    def set_value(self, value: Any) -> None:
        """Handles another value from now on."""
        self.value = value
        self.save()


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
        """Gives all ranks the state of rank 0."""
        broadcast_optimizer_state(self.value, root_rank=0)
        self.save()


class SamplerStateHandler(StateHandler):
    """How far a sampler has come."""

    def __init__(self, sampler: ElasticSampler) -> None:  # noqa: D107
        super().__init__(sampler)

    def sync(self) -> None:
        """Brings all ranks to where rank 0 is."""
        self.value.load_state_dict(broadcast_object(self.value.state_dict(), name="sampler"))
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


class TorchState(ObjectState):
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
        given = {"model": model, "optimizer": optimizer, **kwargs}
        made = {name: _handler(value) for name, value in given.items()}
        self._handlers = {name: handler for name, handler in made.items() if handler is not None}
        for name, handler in self._handlers.items():
            object.__setattr__(self, name, handler.value)
        plain = {name: value for name, value in kwargs.items() if name not in self._handlers}
        super().__init__(broadcast_object, _common.rank, **plain)

    def save(self) -> None:
        """Keeps a copy of everything."""
        for handler in self._handlers.values():
            handler.save()
        super().save()

    def restore(self) -> None:
        """Takes back what was saved last."""
        for handler in self._handlers.values():
            handler.restore()
        super().restore()

    def sync(self) -> None:
        """Gives all ranks what rank 0 has."""
        for handler in self._handlers.values():
            handler.sync()
        super().sync()

    def __setattr__(self, name: str, value: Any) -> None:  # noqa: D105
        super().__setattr__(name, value)
        if name in self.__dict__.get("_handlers", ()):
            self._handlers[name].set_value(value)
