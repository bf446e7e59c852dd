"""The gradients of collectives."""

import pytest
import torch

import sirtaki.torch as hvd


def leaf(*shape):
    return torch.ones(shape).mul_(hvd.rank() + 1.0).requires_grad_()


@pytest.mark.parametrize("op", [hvd.Sum, hvd.Average])
def test_allreduce(op):
    mine, weight = leaf(3, 2), torch.full((3, 2), float(hvd.rank() + 2))
    hvd.allreduce(mine, op=op).backward(weight)
    torch.testing.assert_close(mine.grad, hvd.allreduce(weight, op=op))


def test_allreduce_compressed():
    mine = leaf(3)
    hvd.allreduce(mine, op=hvd.Sum, compression=hvd.Compression.fp16).sum().backward()
    assert mine.grad.tolist() == [hvd.size()] * 3


def test_grouped_allreduce():
    first, second = leaf(3), leaf(2, 2)
    out = hvd.grouped_allreduce([first, second], op=hvd.Sum)
    (out[0].sum() + 2 * out[1].sum()).backward()
    assert first.grad.eq(hvd.size()).all() and second.grad.eq(2 * hvd.size()).all()


def test_allgather():
    mine = leaf(hvd.rank() + 1, 2)
    gathered = hvd.allgather(mine)
    # Every rank weighs a row by the rank it came from.
    owners = torch.cat([torch.full((rank + 1, 1), rank + 1.0) for rank in range(hvd.size())])
    (gathered * owners).sum().backward()
    assert mine.grad.eq(hvd.rank() + 1).all() and mine.grad.shape == mine.shape


def test_grouped_allgather():
    first, second = leaf(2), leaf()
    gathered = hvd.grouped_allgather([first, second])
    sum(part.sum() for part in gathered).backward()
    assert first.grad.tolist() == [1.0, 1.0] and second.grad.item() == 1.0


def test_broadcast():
    for root in range(hvd.size()):
        mine = leaf(4)
        hvd.broadcast(mine, root).sum().backward()
        assert mine.grad.eq(1.0 if hvd.rank() == root else 0.0).all()


def test_alltoall():
    size = hvd.size()
    mine = leaf(sum(range(size + 1)), 2)
    received, counts = hvd.alltoall(mine, list(range(1, size + 1)))
    assert not counts.requires_grad
    (received * (hvd.rank() + 1)).sum().backward()
    # A row's gradient comes from where it went.
    wanted = torch.cat([torch.full((rank + 1, 2), rank + 1.0) for rank in range(size)])
    assert torch.equal(mine.grad, wanted)
    equal = leaf(size)
    hvd.alltoall(equal).sum().backward()
    assert equal.grad.eq(1).all()


@pytest.mark.parametrize("op", [hvd.Sum, hvd.Average])
def test_reducescatter(op):
    mine = leaf(hvd.size() * 2 + 1, 2)
    hvd.reducescatter(mine, op=op, prescale_factor=2.0).sum().backward()
    assert mine.grad.eq(2.0 * (hvd.size() if op == hvd.Sum else 1)).all()
    first, second = leaf(hvd.size()), leaf(hvd.size(), 2)
    sum(part.sum() for part in hvd.grouped_reducescatter([first, second])).backward()
    assert first.grad.eq(1).all() and second.grad.shape == second.shape


def test_nothing_is_followed_without_need():
    with torch.no_grad():
        assert not hvd.allreduce(leaf(2)).requires_grad
    assert hvd.allreduce(leaf(2)).requires_grad
