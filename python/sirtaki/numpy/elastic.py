"""Training that goes on after a failure, with arrays and any other values as state.

>>> import numpy, sirtaki.numpy as hvd
>>> hvd.init()
>>> @hvd.elastic.run
... def train(state):
...     while state.batch < 3:
...         state.weights -= 0.5 * hvd.allreduce(numpy.ones(2), name="gradient")
...         state.batch += 1
...         state.commit()
>>> state = hvd.elastic.ArrayState(weights=numpy.zeros(2), batch=0)
>>> train(state)
>>> state.weights
array([-1.5, -1.5])

When a collective fails, ranks go on from the last commit. Under ``sirtaki run --min-ranks``,
workers may be lost, leave and come; in other jobs a rank that is gone ends the job.
"""

from __future__ import annotations

from typing import Any

from sirtaki._core.elastic import State, run, run_fn
from sirtaki._core.handlers import HandledState, SamplerStateHandler, StateHandler
from sirtaki._core.sampler import ElasticSampler

__all__ = ["ArrayState", "ElasticSampler", "State", "run", "run_fn"]


def _handler(value: Any) -> StateHandler | None:
    return SamplerStateHandler(value) if isinstance(value, ElasticSampler) else None


class ArrayState(HandledState):
    """Arrays, samplers and any other values that can be copied and pickled, as attributes.

    >>> import numpy, sirtaki.numpy as hvd
    >>> hvd.init()
    >>> state = hvd.elastic.ArrayState(weights=numpy.ones(2), epoch=0)
    >>> state.weights += 1
    >>> state.restore()
    >>> state.weights
    array([1., 1.])
    """

    def __init__(self, **values: Any) -> None:  # noqa: D107
        super().__init__(_handler, **values)
