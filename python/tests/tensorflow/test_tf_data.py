"""``tf.data`` by rank: the samples of the plans, on every rank."""

import numpy as np
import pytest
import tensorflow as tf

import sirtaki.numpy as hvd
from sirtaki.data import Draws, Partition
from sirtaki.data.tensorflow import from_arrays, shard


@pytest.fixture(autouse=True, scope="module")
def job():
    hvd.init()


def listed(dataset):
    return [batch.numpy().tolist() for batch in dataset]


@pytest.mark.parametrize("knows_length", [True, False])
def test_a_data_set_in_its_own_order(knows_length):
    count = 10 * hvd.size() + 3
    dataset = tf.data.Dataset.range(count)
    if not knows_length:
        dataset = dataset.filter(lambda number: number >= 0)
    expected = [batch.tolist() for batch in Partition(count, 4, shuffle=False, last="drop")]
    assert listed(shard(dataset, 4)) == expected
    rest = np.concatenate(listed(shard(dataset, 4, drop_remainder=False)))
    assert sorted(hvd.allgather(rest)) == list(range(count))


def test_structures_keep_their_shape():
    data = {"x": np.arange(16 * hvd.size()).reshape(-1, 2), "y": np.arange(8 * hvd.size())}
    pairs = tf.data.Dataset.from_tensor_slices((data, data["y"]))
    for named, labels in shard(pairs, 2):
        assert named["x"].shape == (2, 2)
        assert named["y"].numpy().tolist() == labels.numpy().tolist()
        assert named["x"].numpy()[:, 0].tolist() == (2 * labels.numpy()).tolist()


@pytest.mark.parametrize("last", ["keep", "drop", "pad"])
def test_arrays_in_the_order_of_a_plan_again_in_every_epoch(last):
    count = 9 * hvd.size() + 2
    plan = Partition(count, 4, seed=3, last=last)
    dataset, seen = from_arrays(np.arange(count), plan), []
    for epoch in (0, 1, 5):
        plan.set_epoch(epoch)
        seen.append(listed(dataset))
        assert seen[-1] == listed(dataset) == [batch.tolist() for batch in plan]
    assert seen[0] != seen[1] != seen[2]


def test_continuing_in_the_middle_and_draws():
    count = 8 * hvd.size()
    plan = Partition(count, 2, seed=1)
    rest = Partition(count, 2, seed=1)
    rest.seek(plan.position(2))
    dataset = from_arrays({"x": np.arange(count)}, rest)
    assert [batch["x"].numpy().tolist() for batch in dataset] == [plan[n].tolist() for n in (2, 3)]
    plan.set_epoch(1)
    rest.set_epoch(1)
    assert [batch["x"].numpy().tolist() for batch in dataset] == [one.tolist() for one in plan]
    draws = Draws(count, 3, 2, seed=4)
    assert listed(from_arrays(np.arange(count), draws)) == [one.tolist() for one in draws]
    with pytest.raises(ValueError, match="does not fit"):
        from_arrays(np.arange(3), plan)
