"""Process sets and groups that overlap: whoever orders their operations, nobody waits for ever."""

from itertools import combinations

import pytest
import torch
import torch.distributed as dist
from gpu import DEVICE

import sirtaki.torch as hvd

pytestmark = pytest.mark.usefixtures("process_group")


@pytest.fixture(scope="module")
def sets():
    """Three overlapping sets of three of four ranks; only some where there are fewer ranks."""
    if hvd.size() < 4:
        pytest.skip("needs four ranks")
    made = [hvd.add_process_set(list(ranks)) for ranks in list(combinations(range(4), 3))[:3]]
    yield made
    for one in made:
        hvd.remove_process_set(one)


@pytest.fixture(scope="module")
def groups():
    """Three groups of all ranks."""
    return [dist.new_group() for _ in range(3)]


def in_opposite_orders(things, round_number):
    """Every second rank goes the other way, and every second round everybody turns."""
    return things if (hvd.rank() + round_number) % 2 else things[::-1]


def in_sets(sets, rounds):
    mine = [one for one in sets if one.included()]
    for number in range(rounds):
        handles = {}
        for one in in_opposite_orders(mine, number):
            tensor = torch.full((1000 + number % 7,), hvd.rank() + 1.0, device=DEVICE)
            name = f"{number % 16} in {one.process_set_id}"
            handles[one] = hvd.allreduce_async_(tensor, op=hvd.Sum, name=name, process_set=one)
        for one, handle in handles.items():
            result = hvd.synchronize(handle)
            if number % 50 == 0:
                assert result.eq(sum(rank + 1 for rank in one.ranks)).all()


def in_groups(groups, rounds):
    total = sum(range(1, hvd.size() + 1))
    for number in range(rounds):
        works = []
        for group in in_opposite_orders(groups, number):
            tensor = torch.full((1000 + number % 7,), hvd.rank() + 1.0, device=DEVICE)
            works.append((tensor, dist.all_reduce(tensor, group=group, async_op=True)))
        for tensor, work in works:
            work.wait()
            if number % 50 == 0:
                assert tensor.eq(total).all()


def test_each_set_has_collectives_of_its_own(sets):
    for one in sets:
        if one.included():
            mine = torch.full((3,), float(hvd.rank()), device=DEVICE)
            assert hvd.allreduce(mine, op=hvd.Max, process_set=one).eq(max(one.ranks)).all()
            assert hvd.allgather(mine[:1], process_set=one).tolist() == one.ranks
            root = one.ranks[-1]
            assert hvd.broadcast(mine, root, process_set=one).eq(root).all()


def test_sets_in_opposite_orders(sets):
    in_sets(sets, 200)


def test_groups_in_opposite_orders(groups):
    in_groups(groups, 200)


@pytest.mark.slow
def test_ten_thousand_operations_in_sets(sets):
    in_sets(sets, 10_000 // len(sets) + 1)


@pytest.mark.slow
def test_ten_thousand_operations_in_groups(groups):
    in_groups(groups, 10_000 // len(groups) + 1)
