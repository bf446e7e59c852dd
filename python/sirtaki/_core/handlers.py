"""State made of values that are each saved, restored and made equal in their own way."""

from __future__ import annotations

import copy
from typing import Any, Callable

from sirtaki._core import job
from sirtaki._core.elastic import ObjectState
from sirtaki._core.objects import broadcast_object
from sirtaki._core.sampler import ElasticSampler


class StateHandler:
    """How one value is saved, restored and made equal on all ranks."""

    def __init__(self, value: Any) -> None:
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


class SamplerStateHandler(StateHandler):
    """How far a sampler has come."""

    def __init__(self, sampler: ElasticSampler) -> None:
        super().__init__(sampler)

    def sync(self) -> None:
        """Brings all ranks to where rank 0 is."""
        self.value.load_state_dict(broadcast_object(self.value.state_dict(), name="sampler"))
        self.save()


class HandledState(ObjectState):
    """Attributes, some of which have handlers; the others can be copied and pickled.

    ``handler`` makes the handler of a value, or says with ``None`` that it needs none.

    >>> import sirtaki.numpy as hvd
    >>> hvd.init()
    >>> def handler(value):
    ...     return SamplerStateHandler(value) if isinstance(value, ElasticSampler) else None
    >>> state = HandledState(handler, sampler=ElasticSampler(range(8)), epoch=0)
    >>> state.sampler.record_batch(0, batch_size=2)
    >>> state.restore()
    >>> state.sampler.processed_num
    0
    """

    def __init__(self, handler: Callable[[Any], StateHandler | None], /, **values: Any) -> None:
        made = {name: handler(value) for name, value in values.items()}
        self._handlers = {name: one for name, one in made.items() if one is not None}
        for name, one in self._handlers.items():
            object.__setattr__(self, name, one.value)
        plain = {name: value for name, value in values.items() if name not in self._handlers}
        super().__init__(broadcast_object, job.rank, **plain)

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

    def __setattr__(self, name: str, value: Any) -> None:
        super().__setattr__(name, value)
        if name in self.__dict__.get("_handlers", ()):
            self._handlers[name].set_value(value)
