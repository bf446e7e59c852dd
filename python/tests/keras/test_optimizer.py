"""Optimizers that reduce gradients: what is learned is what one process learns."""

import json

import keras
import numpy as np
import pytest
from learning import BACK_END, BATCH, STEPS, alone, data, network, own, same, together

import sirtaki.keras as hvd

OPTIMIZERS = {
    "momentum": lambda: keras.optimizers.SGD(0.1, momentum=0.9),
    "adam": lambda: keras.optimizers.Adam(0.01),
    "clipped": lambda: keras.optimizers.Adam(0.01, global_clipnorm=0.05),
    "accumulating": lambda: keras.optimizers.SGD(0.1, gradient_accumulation_steps=2),
    "loss scaled": lambda: keras.optimizers.LossScaleOptimizer(keras.optimizers.SGD(0.1)),
    "scheduled": lambda: keras.optimizers.SGD(
        keras.optimizers.schedules.ExponentialDecay(0.1, 20, 0.5)
    ),
}


NEW = ("accumulating", "loss scaled", "scheduled")


@pytest.mark.core
@pytest.mark.parametrize(
    "kind",
    [pytest.param(kind, marks=pytest.mark.keras3 if kind in NEW else ()) for kind in OPTIMIZERS],
)
def test_ranks_learn_what_one_process_learns(kind):
    model = together(hvd.DistributedOptimizer(OPTIMIZERS[kind]()))
    same(model, alone(OPTIMIZERS[kind]()))


def modes():
    eager = {"run_eagerly": True, "jit_compile": False}
    auto = pytest.param({"jit_compile": "auto"}, marks=pytest.mark.keras3)
    modes = [{"jit_compile": False}, auto, eager]
    return [*modes, {"jit_compile": True}] if BACK_END == "jax" else modes


@pytest.mark.core
@pytest.mark.parametrize("mode", modes(), ids=str)
def test_however_keras_compiles_the_step(mode):
    model = together(hvd.DistributedOptimizer(keras.optimizers.SGD(0.1)), **mode)
    same(model, alone(keras.optimizers.SGD(0.1)))


@pytest.mark.core
@pytest.mark.skipif(BACK_END != "tensorflow", reason="only TensorFlow cannot do it")
def test_compilation_that_is_impossible_is_refused(several):
    optimizer = hvd.DistributedOptimizer(keras.optimizers.SGD(0.1))
    with pytest.raises(Exception, match=r"hint: .*jit_compile=False"):
        together(optimizer, jit_compile=True)


def reductions(tmp_path, train):
    """How often rank 0 reduced the first gradient meanwhile."""
    path = tmp_path / "timeline.json"
    hvd.start_timeline(str(path))
    train()
    hvd.stop_timeline()
    if hvd.rank():
        return None
    events = json.loads(path.read_text())["traceEvents"]
    names = [one["name"] for one in events if one["ph"] == "X" and one["pid"] == 0]
    of_gradients = [name for name in names if "DistributedSGD" in name]
    return max(of_gradients.count(name) for name in of_gradients)


@pytest.mark.core
@pytest.mark.keras3
def test_accumulated_gradients_are_reduced_once_per_step(several, tmp_path):
    plain = hvd.DistributedOptimizer(keras.optimizers.SGD(0.1))
    every = reductions(tmp_path, lambda: together(plain, epochs=1))
    summing = keras.optimizers.SGD(0.1, gradient_accumulation_steps=2)
    half = reductions(tmp_path, lambda: together(hvd.DistributedOptimizer(summing), epochs=1))
    if hvd.rank() == 0:
        assert every == STEPS and half == STEPS // 2


@pytest.mark.core
@pytest.mark.keras3
@pytest.mark.parametrize("inside", [False, True])
def test_an_overflow_on_one_rank_is_one_on_all(several, inside):
    """Then nobody makes a step, and the scale is halved; otherwise ranks would wait for ever."""
    optimizer = keras.optimizers.SGD(0.1)
    if inside:
        optimizer = keras.optimizers.LossScaleOptimizer(hvd.DistributedOptimizer(optimizer), 1024)
    else:
        scaling = keras.optimizers.LossScaleOptimizer(optimizer, 1024)
        optimizer = hvd.DistributedOptimizer(scaling)
    model, (x, y) = network(), data()
    model.compile(optimizer=optimizer, loss="mse")
    model.train_on_batch(own(x), own(y))
    before = model.get_weights()
    if hvd.rank() == 1:
        x = x * np.inf
    model.train_on_batch(own(x), own(y))
    for weight, old in zip(model.get_weights(), before):
        np.testing.assert_array_equal(weight, old)
    assert float(optimizer.dynamic_scale) == 512.0
    assert int(optimizer.iterations) == 1


@pytest.mark.core
@pytest.mark.keras3
def test_mixed_precision_of_keras(several):
    """Keras puts the optimizer that scales the loss around the distributed one by itself."""
    keras.mixed_precision.set_global_policy("mixed_float16")
    try:
        model = together(hvd.DistributedOptimizer(keras.optimizers.SGD(0.1)))
        expected = alone(keras.optimizers.SGD(0.1))
    finally:
        keras.mixed_precision.set_global_policy("float32")
    assert type(model.optimizer).__name__ == "LossScaleOptimizer"
    same(model, expected, tolerance=2e-3)
    alike = hvd.allgather_object([weight.tolist() for weight in model.get_weights()])
    assert all(weights == alike[0] for weights in alike)


@pytest.mark.parametrize("averages", [False, True])
def test_several_backward_passes_per_step(averages):
    optimizer = keras.optimizers.SGD(0.1 if averages else 0.05)
    optimizer = hvd.DistributedOptimizer(
        optimizer, backward_passes_per_step=2, average_aggregated_gradients=averages
    )
    same(together(optimizer), alone(OPTIMIZERS["accumulating"]()))


@pytest.mark.core
def test_sums_factors_and_compression():
    total = hvd.DistributedOptimizer(keras.optimizers.SGD(0.1 / hvd.size()), op=hvd.Sum)
    expected = alone(keras.optimizers.SGD(0.1))
    same(together(total), expected)
    divided = hvd.DistributedOptimizer(keras.optimizers.SGD(0.1), gradient_predivide_factor=2.0)
    same(together(divided), expected)
    small = hvd.DistributedOptimizer(keras.optimizers.SGD(0.1), compression=hvd.Compression.fp16)
    same(together(small), expected, tolerance=1e-3)


def test_layers_that_stay_local(several):
    model, (x, y) = network(), data()
    model.layers[0].set_weights([weight + hvd.rank() for weight in model.layers[0].get_weights()])
    optimizer = hvd.PartialDistributedOptimizer(
        keras.optimizers.SGD(0.1), local_layers=model.layers[0]
    )
    model.compile(optimizer=optimizer, loss="mse")
    model.train_on_batch(own(x), own(y))
    everybody = hvd.allgather_object([weight.tolist() for weight in model.get_weights()])
    first, last = everybody[0], everybody[-1]
    assert first[0] != last[0] and first[2:] == last[2:]


def test_it_stays_what_it_was():
    optimizer = hvd.DistributedOptimizer(keras.optimizers.Adam(0.25))
    assert isinstance(optimizer, keras.optimizers.Adam)
    config = optimizer.get_config()
    assert type(optimizer).from_config(config).get_config() == config
    assert keras.optimizers.serialize(optimizer)["class_name"] == "Adam"
    with pytest.raises(ValueError, match=r"already.*\nhint: "):
        hvd.DistributedOptimizer(optimizer)
    with pytest.raises(ValueError, match="Average or Sum"):
        hvd.DistributedOptimizer(keras.optimizers.Adam(), op=hvd.Min)


@pytest.mark.core
def test_models_are_saved_without_a_trace_and_loaded_again(tmp_path):
    model = together(hvd.DistributedOptimizer(keras.optimizers.Adam(0.01)))
    path = tmp_path / "model.keras"
    model.save(path)
    plain = keras.models.load_model(path)
    assert type(plain.optimizer) is type(keras.optimizers.Adam())
    again, (x, y) = hvd.load_model(path), data()
    assert int(again.optimizer.iterations) == 2 * STEPS
    for one in (model, again):
        one.fit(own(x), own(y), batch_size=BATCH // hvd.size(), shuffle=False, verbose=0)
    same(again, model.get_weights())
    plain.fit(x, y, batch_size=BATCH, shuffle=False, verbose=0)
    same(again, plain.get_weights())


class Own(keras.optimizers.SGD):
    """An optimizer that Keras does not know."""


def test_own_optimizers_are_loaded(tmp_path):
    model = together(hvd.DistributedOptimizer(Own(0.1)), epochs=1)
    path = tmp_path / "model.keras"
    model.save(path)
    again = hvd.load_model(path, custom_optimizers=[Own])
    assert isinstance(again.optimizer, Own) and type(again.optimizer) is not Own
