"""Epochs that were interrupted: ``fit`` makes what is left of them, and then whole ones."""

import keras
import numpy as np
import pytest

import sirtaki
import sirtaki.keras as hvd
from sirtaki._core.elastic import HostsUpdatedInterrupt, run_fn

STEPS, EPOCHS = 6, 3
ONES = np.ones((STEPS, 1), "float32")


def endless():
    while True:
        yield ONES[:1], ONES[:1]


def from_sequence():
    class Batches(keras.utils.PyDataset):
        def __len__(self):
            return STEPS

        def __getitem__(self, index):
            return ONES[:1], ONES[:1]

    return {"x": Batches()}


KINDS = {
    "endless": lambda: {"x": endless(), "steps_per_epoch": STEPS},
    "counted": lambda: {"x": ONES, "y": ONES, "batch_size": 1, "steps_per_epoch": STEPS},
    "sequence": from_sequence,
}


class Watch(keras.callbacks.Callback):
    """Notes how many batches are made in which epoch, and interrupts them as planned."""

    def __init__(self, state, plan=()):
        super().__init__()
        self.state, self.plan, self.seen = state, dict(plan), []

    def on_epoch_begin(self, epoch, logs=None):
        self.seen.append([self.state.epoch, 0])

    def on_train_batch_end(self, batch, logs=None):
        self.seen[-1][1] += 1
        interruption = self.plan.pop((self.state.epoch, self.state.batch), None)
        if interruption is not None:
            raise interruption


def trained(**attributes):
    model = keras.Sequential([keras.Input((1,)), keras.layers.Dense(1)])
    model.compile(keras.optimizers.SGD(0.01), "mse")
    return model, hvd.elastic.KerasState(model, **attributes)


def callbacks(state):
    return [
        hvd.elastic.UpdateEpochStateCallback(state),
        hvd.elastic.UpdateBatchStateCallback(state),
        hvd.elastic.CommitStateCallback(state, batches_per_commit=2),
    ]


@pytest.mark.core
@pytest.mark.parametrize(
    ("kind", "counts_on"),
    [
        ("endless", True),
        ("counted", False),
        pytest.param("sequence", True, marks=pytest.mark.keras3),
    ],
)
def test_what_is_left_of_an_epoch(kind, counts_on):
    model, state = trained(epoch=0, batch=0)
    # The first takes back a batch, to the last commit; the second takes back none.
    plan = {(1, 3): sirtaki.Error("lost"), (1, 4): HostsUpdatedInterrupt(skip_sync=False)}
    watch = Watch(state, plan)
    every, calls = [*callbacks(state), watch], []

    def train(state):
        calls.append((state.epoch, state.batch))
        first, last = (state.epoch, EPOCHS) if counts_on else (0, EPOCHS - state.epoch)
        data = KINDS[kind]()
        model.fit(**data, initial_epoch=first, epochs=last, callbacks=every, verbose=0)

    run_fn(train, lambda: None)(state)
    assert calls == [(0, 0), (1, 2), (1, 4), (2, 0)]
    assert watch.seen == [[0, STEPS], [1, 3], [1, 2], [1, 2], [2, STEPS]]
    assert (state.epoch, state.batch) == (EPOCHS, 0)
    assert int(model.optimizer.iterations) == EPOCHS * STEPS


@pytest.mark.parametrize("stops", [False, True])
def test_what_is_left_of_an_epoch_outside_of_run(stops):
    """Whoever else stops the training is obeyed; the rest is never less than a batch."""
    model, state = trained(epoch=1, batch=STEPS)
    watch = Watch(state)

    class Stop(keras.callbacks.Callback):
        def on_epoch_end(self, epoch, logs=None):
            if stops:
                self.model.stop_training = True

    every = [Stop(), *callbacks(state), watch]
    data = KINDS["endless"]()
    model.fit(**data, initial_epoch=1, epochs=EPOCHS, callbacks=every, verbose=0)
    assert watch.seen == ([[1, 1]] if stops else [[1, 1], [2, STEPS]])
