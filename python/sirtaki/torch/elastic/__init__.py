"""Training that goes on after a failure, with the functions of ``horovod.torch.elastic``.

>>> import torch, sirtaki.torch as hvd
>>> hvd.init()
>>> model = torch.nn.Linear(2, 1)
>>> optimizer = hvd.DistributedOptimizer(torch.optim.SGD(model.parameters(), lr=0.1))
>>> @hvd.elastic.run
... def train(state):
...     while state.batch < 3:
...         optimizer.zero_grad()
...         model(torch.ones(4, 2)).sum().backward()
...         optimizer.step()
...         state.batch += 1
...         state.commit()
>>> state = hvd.elastic.TorchState(model, optimizer, batch=0)
>>> train(state)
>>> state.batch
3

The ranks stay the same from the start of a job to its end. When a collective fails on all of them,
they go on from the last commit; a rank that is gone ends the job.
"""

from __future__ import annotations

from typing import Any, Callable

from sirtaki._common import shutdown
from sirtaki._elastic import State, run_fn
from sirtaki._errors import Error
from sirtaki._process_sets import init
from sirtaki.torch.elastic import sampler, state
from sirtaki.torch.elastic.sampler import ElasticSampler
from sirtaki.torch.elastic.state import TorchState

__all__ = [
    "ElasticSampler",
    "State",
    "TorchState",
    "init",
    "run",
    "run_fn",
    "sampler",
    "shutdown",
    "state",
]


def run(func: Callable[..., Any]) -> Callable[..., Any]:
    """A training function whose first argument is a state, and which survives failures.

    The state is made equal on all ranks before the function is called. When a collective fails,
    ranks take back what they committed last, join the job again, and the function is called again.
    Three failures without a commit between them are raised.
    """
    return run_fn(func, _join_again)


def _join_again() -> None:
    shutdown()
    try:
        init()
    except RuntimeError as error:
        raise Error(
            f"after a failure the ranks could not come together again: {error}\n"
            "hint: a rank that is gone is not replaced; restart the job, from a checkpoint"
        ) from error
