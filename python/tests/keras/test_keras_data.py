"""Keras' data sets by rank: the samples of the plans, on every rank, whatever the back end."""

import keras
import numpy as np
import pytest

import sirtaki.numpy as hvd
from sirtaki.data import Draws, Partition
from sirtaki.data.keras import epochs, from_arrays, shard


@pytest.fixture(autouse=True, scope="module")
def job():
    hvd.init()


class Seen(keras.Model):
    """Remembers which samples it was trained with."""

    def __init__(self):
        super().__init__()
        self.layer = keras.layers.Dense(1)
        self.numbers = []

    def call(self, inputs):
        return self.layer(inputs)

    def train_step(self, *data):
        self.numbers.extend(np.asarray(data[-1][0])[:, 0].astype(int).tolist())
        return {"loss": 0.0}


def test_fit_goes_through_the_epochs():
    count = 4 * hvd.size() + 1
    inputs = np.arange(count, dtype="float32").reshape(-1, 1)
    model = Seen()
    model.compile(optimizer="sgd", run_eagerly=True)
    plan = Partition(count, 2, seed=7, last="pad")
    dataset = from_arrays((inputs, inputs), plan)
    assert len(dataset) == len(plan) == 3
    for first in (0, 2):
        model.numbers.clear()
        model.fit(
            dataset, epochs=first + 2, initial_epoch=first, callbacks=[epochs(plan)], verbose=0,
            shuffle=False,
        )  # fmt: skip
        expected = [
            number
            for epoch in (first, first + 1)
            for batch in Partition(count, 2, seed=7, epoch=epoch, last="pad")
            for number in batch.tolist()
        ]
        # Before its first epoch, Keras may look at a batch.
        assert model.numbers[-len(expected) :] == expected


def test_a_plan_that_cannot_be_trained_with():
    plan = Partition(8 * hvd.size(), 2)
    plan.seek(plan.position(1))
    with pytest.raises(ValueError, match=r"(?s)seen already.*train_on_batch"):
        from_arrays(np.arange(8 * hvd.size()), plan)
    with pytest.raises(ValueError, match="does not fit"):
        from_arrays(np.arange(3), plan)


def test_batches_of_another_data_set():
    count = 5 * hvd.size() - 1
    whole = from_arrays(np.arange(2 * count), Partition(2 * count, 2, seed=1, rank=0, size=1))
    mine = shard(whole)
    assert len(mine) == 4
    everybody = hvd.allgather(np.concatenate([mine[number] for number in range(4)]))
    dealt = np.concatenate([whole[number] for number in range(4 * hvd.size())])
    assert sorted(everybody) == sorted(dealt)
    mine.on_epoch_begin()
    mine.on_epoch_end()
    draws = from_arrays(np.arange(50), Draws(50, 3, 2))
    assert len(draws) == 2 and draws[1].tolist() == Draws(50, 3, 2)[1].tolist()
