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

When a collective fails, ranks go on from the last commit. Under ``sirtaki run --min-ranks``,
workers may be lost, leave and come; in other jobs a rank that is gone ends the job.
"""

from sirtaki._core.elastic import State, run, run_fn
from sirtaki._core.job import shutdown
from sirtaki._core.process_sets import init
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
