"""Sizes that differ between ranks: an error on each names ranks and sizes, and it goes on.

Every test would wait for ever if ranks were not told. They have a group of their own: in that of
all tests, threads of others have submitted something, and may do so again.
"""

from functools import partial

import pytest
import torch
import torch.distributed as dist

import sirtaki

pytestmark = pytest.mark.usefixtures("own_group", "several")


class Ours:
    """Collectives of a group of all ranks that nobody else uses."""

    group = None

    def __getattr__(self, name):
        return partial(getattr(dist, name), group=self.group)


ours = Ours()


@pytest.fixture(scope="module")
def own_group(process_group):
    ours.group = dist.new_group()


def rank():
    return dist.get_rank()


def size():
    return dist.get_world_size()


def last():
    return size() - 1


def odd():
    """One more on the last rank."""
    return 4 + (rank() == last())


def all_gather():
    ours.all_gather([torch.empty(odd()) for _ in range(size())], torch.ones(odd()))


def all_gather_of_less_than_there_is_room_for():
    own = torch.ones(4 - (rank() == last()))
    ours.all_gather([torch.empty(4) for _ in range(size())], own)


def gather():
    parts = [torch.empty(4) for _ in range(size())] if rank() == 0 else None
    ours.gather(torch.ones(odd()), parts, 0)


def scatter():
    parts = [torch.ones(4) for _ in range(size())] if rank() == 0 else None
    ours.scatter(torch.empty(odd()), parts, 0)


def all_to_all():
    rows = [1] * size()
    expected = [1] * last() + [1 + (rank() == last())]
    ours.all_to_all_single(torch.empty(sum(expected), 3), torch.ones(size(), 3), expected, rows)


def all_to_all_lists():
    given = [torch.ones(2) for _ in range(size())]
    ours.all_to_all([torch.empty(2 + (rank() == 0)) for _ in range(size())], given)


def coalesced():
    with dist.distributed_c10d._coalescing_manager(ours.group):
        ours.all_reduce(torch.ones(7))
        ours.all_reduce(torch.ones(odd()))


SHAPES = r"different shapes: ranks? .*shape \[{}\], rank {} shape \[{}\]"
CALLS = {
    "all_reduce": (lambda: ours.all_reduce(torch.ones(odd())), (4, 5)),
    "all_reduce of rows": (lambda: ours.all_reduce(torch.ones(odd(), 3)), ("4, 3", "5, 3")),
    "reduce": (lambda: ours.reduce(torch.ones(odd()), 0), (4, 5)),
    "broadcast": (lambda: ours.broadcast(torch.ones(odd()), 0), (4, 5)),
    "coalesced": (coalesced, (4, 5)),
    "reduce_scatter": (
        lambda: ours.reduce_scatter_tensor(torch.empty(odd()), torch.ones(odd() * size())),
        (r"\d, 4", r"\d, 5"),
    ),
    "all_gather": (all_gather, "rank 0 has room for 4 elements from rank {}, which sends 5"),
    "all_gather of less": (
        all_gather_of_less_than_there_is_room_for,
        "rank 0 has room for 4 elements from rank {}, which sends 3",
    ),
    "gather": (gather, "rank 0 has room for 4 elements from rank {}, which sends 5"),
    "scatter": (scatter, "rank {} has room for 5 elements from rank 0, which sends 4"),
    "all_to_all": (all_to_all, "rank {0} has room for 6 elements from rank {0}, which sends 3"),
    "all_to_all of lists": (
        all_to_all_lists,
        "rank 0 has room for 3 elements from rank 0, which sends 2",
    ),
}


def in_turn():
    """Collectives of the same sizes, which would not fit if ranks counted differently."""
    for count in (4, 5, 4):
        tensor = torch.ones(count)
        ours.all_reduce(tensor)
        assert tensor.eq(size()).all()
        parts = [torch.empty(count) for _ in range(size())]
        ours.all_gather(parts, torch.full((count,), float(rank())))
        assert all(part.eq(number).all() for number, part in enumerate(parts))


@pytest.mark.parametrize("name", CALLS)
def test_sizes_that_differ(name):
    if name == "coalesced" and torch.__version__.startswith(("1.", "2.0")):
        pytest.skip("this PyTorch does not have it")
    call, expected = CALLS[name]
    if isinstance(expected, tuple):
        expected = SHAPES.format(expected[0], last(), expected[1])
    else:
        expected = expected.format(last())
    for _ in range(2):
        with pytest.raises(sirtaki.Error, match=expected):
            call()
        in_turn()


def test_sizes_that_differ_among_some_of_the_ranks():
    group = dist.new_group([0, last()])
    if rank() in (0, last()):
        with pytest.raises(sirtaki.Error, match=r"rank 0 shape \[4\], rank 1 shape \[5\]"):
            dist.all_reduce(torch.ones(odd()), group=group)
        tensor = torch.ones(4)
        dist.all_reduce(tensor, group=group)
        assert tensor.eq(2).all()


def test_sizes_that_differ_are_noticed_although_a_future_waits_for_them():
    work = ours.all_reduce(torch.ones(odd()), async_op=True)
    future = work.get_future().then(lambda done: done.value())
    with pytest.raises(sirtaki.Error, match="different shapes"):
        work.wait()
    with pytest.raises(RuntimeError, match="different shapes"):
        future.wait()
    in_turn()


def test_ranks_that_both_wait_for_the_first_message():
    """Nothing was sent before, so they meet in the background."""
    group = dist.new_group([0, last()])
    if rank() in (0, last()):
        with pytest.raises(sirtaki.Error, match="wait for each other"):
            dist.recv(torch.ones(1), last() if rank() == 0 else 0, group=group)
