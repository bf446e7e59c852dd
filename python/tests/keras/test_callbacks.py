"""What ``fit`` calls: equal starts, averaged metrics, learning rates, the best model."""

import keras
import numpy as np
import pytest
from learning import BATCH, STEPS, data, network, own, same, together

import sirtaki.keras as hvd
from sirtaki import _progress


def rates(callbacks, epochs, optimizer=None):
    """The learning rate after every batch."""
    found = []

    class Look(keras.callbacks.Callback):
        def on_train_batch_end(self, batch, logs=None):
            found.append(float(self.model.optimizer.learning_rate))

    optimizer = hvd.DistributedOptimizer(optimizer or keras.optimizers.SGD(0.8))
    model = together(optimizer, epochs=epochs, callbacks=[*callbacks, Look()])
    return found, model.history.history


@pytest.mark.core
def test_variables_of_another_rank(several):
    model = network()
    model.set_weights([weight * 0 + hvd.rank() for weight in model.get_weights()])
    local = model.layers[0].variables
    model.compile(optimizer=hvd.DistributedOptimizer(keras.optimizers.SGD(0.0)), loss="mse")
    start = hvd.callbacks.BroadcastGlobalVariablesCallback(1, local_variables=local)
    x, y = data()
    model.fit(own(x), own(y), callbacks=[start], verbose=0)
    kernel, _, *shared = model.get_weights()
    assert (kernel == hvd.rank()).all()
    assert all((weight == 1).all() for weight in shared)


def test_metrics_are_those_of_all_ranks():
    logs = {"loss": float(hvd.rank()), "text": "no number"}
    if hvd.rank() == 0:
        logs["val_loss"] = 7.0
    hvd.callbacks.MetricAverageCallback().on_epoch_end(0, logs)
    assert logs["loss"] == (hvd.size() - 1) / 2 and logs["text"] == "no number"
    assert logs.get("val_loss", 7.0) == 7.0


@pytest.mark.core
def test_a_rate_warms_up():
    warm = hvd.callbacks.LearningRateWarmupCallback(initial_lr=0.8, warmup_epochs=2, verbose=1)
    found, history = rates([warm], epochs=3)
    share = np.minimum(1, np.arange(1, 3 * STEPS + 1) / (2 * STEPS))
    expected = 0.8 / hvd.size() * (1 + share * (hvd.size() - 1))
    np.testing.assert_allclose(found, expected, rtol=1e-5)
    np.testing.assert_allclose(history["lr"], expected[STEPS - 1 :: STEPS], rtol=1e-5)


def test_a_rate_follows_a_schedule():
    kind = hvd.callbacks.LearningRateScheduleCallback
    halving = kind(initial_lr=0.8, multiplier=0.5, start_epoch=1, end_epoch=3)
    tenth = kind(initial_lr=0.8, multiplier=lambda epoch: 0.1, start_epoch=3)
    found, _ = rates([halving, tenth], epochs=4)
    np.testing.assert_allclose(found[::STEPS], [0.8, 0.8, 0.4, 0.08], rtol=1e-5)
    with pytest.raises(ValueError, match="initial_lr"):
        kind(initial_lr=None, multiplier=1.0)


def test_a_rate_that_is_a_schedule_already_is_refused():
    schedule = keras.optimizers.schedules.CosineDecay(0.1, 20)
    callback = hvd.callbacks.LearningRateScheduleCallback(0.1, 0.5)
    with pytest.raises(TypeError, match="hint: give the optimizer a number"):
        rates([callback], 1, keras.optimizers.SGD(schedule))


@pytest.mark.core
def test_momentum_is_corrected():
    """What is remembered of earlier steps is scaled with the rate, as the momentum would be."""

    def steps(corrects):
        model = network()
        model.compile(optimizer=keras.optimizers.SGD(0.2, momentum=0.5), loss="mse")
        x, y = data()
        change = hvd.callbacks.LearningRateScheduleCallback(
            0.2, lambda epoch: 0.5**epoch, momentum_correction=corrects
        )
        model.fit(x, y, BATCH * STEPS, epochs=2, shuffle=False, verbose=0, callbacks=[change])
        return model.get_weights()

    def expected(factor):
        import numpy

        model = network()
        model.compile(optimizer=keras.optimizers.SGD(0.2, momentum=0.5), loss="mse")
        x, y = data()
        first = model.get_weights()
        model.train_on_batch(x, y)
        velocity = [new - old for new, old in zip(model.get_weights(), first)]
        second = model.get_weights()
        plain = network()
        plain.set_weights(second)
        plain.compile(optimizer=keras.optimizers.SGD(0.1), loss="mse")
        plain.train_on_batch(x, y)
        moved = zip(plain.get_weights(), velocity)
        return [numpy.asarray(weight + 0.5 * factor * speed) for weight, speed in moved]

    for corrects, factor in ((True, 0.5), (False, 1.0)):
        for found, wanted in zip(steps(corrects), expected(factor)):
            np.testing.assert_allclose(found, wanted, atol=2e-6)


def test_the_best_model_is_saved_once(tmp_path):
    path = tmp_path / f"best-{hvd.rank()}.keras"
    best = hvd.callbacks.BestModelCheckpoint(monitor="loss", filepath=str(path))
    model = together(hvd.DistributedOptimizer(keras.optimizers.SGD(0.1)), callbacks=[best])
    assert path.exists() == (hvd.rank() == 0)
    if hvd.rank() == 0:
        same(keras.models.load_model(path), model.get_weights())
    with pytest.raises(ValueError, match="hint: give it filepath"):
        hvd.callbacks.BestModelCheckpoint().on_train_begin()


def test_progress_is_reported(monkeypatch):
    reports = []
    monkeypatch.setattr(
        _progress, "progress", lambda *args, **kwargs: reports.append((args, kwargs))
    )
    callback = hvd.callbacks.ProgressCallback(clock=iter(range(100)).__next__)
    together(hvd.DistributedOptimizer(keras.optimizers.SGD(0.1)), callbacks=[callback])
    steps = [args for args, _ in reports]
    # After every batch, and once more after every epoch.
    counts = [*range(1, STEPS + 1), STEPS, *range(STEPS + 1, 2 * STEPS + 1), 2 * STEPS]
    assert steps == [(step, 2 * STEPS) for step in counts]
    last = reports[-1][1]
    assert last["epoch"] == 2.0 and last["epochs"] == 2 and last["loss"] > 0
