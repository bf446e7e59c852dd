"""A user's program, as strict as mypy can be."""

import torch

import sirtaki
import sirtaki.numpy
import sirtaki.torch as hvd
from sirtaki.data import Partition, Position


def train(epochs: int) -> float:
    hvd.init()
    model = sirtaki.data_parallel(torch.nn.Linear(2, 1))
    hvd.broadcast_parameters(model.state_dict(), root_rank=0)
    optimizer = hvd.DistributedOptimizer(torch.optim.SGD(model.parameters(), lr=0.1))
    loss = 0.0
    plan = Partition(100, batch_size=epochs, last="drop")
    position: Position = plan.position(sirtaki.numpy.size())
    plan.set_epoch(position.epoch)
    for _ in plan:
        optimizer.zero_grad()
        total = model(torch.ones(1, 2)).sum()
        total.backward()
        optimizer.step()
        loss = float(hvd.allreduce(total.detach(), name="loss", op=hvd.Average))
    names: list[str] = [str(rank) for rank in hvd.allgather_object(hvd.rank())]
    everybody: hvd.ProcessSet = hvd.global_process_set
    assert len(names) == everybody.size()
    handle = hvd.allreduce_async(torch.ones(1), process_set=everybody)
    if not hvd.poll(handle):
        hvd.synchronize(handle)
    state = hvd.elastic.TorchState(batch=0)
    state.commit()
    return loss


if __name__ == "__main__":
    results: list[object] = sirtaki.run(train, (2,), ranks=2)
