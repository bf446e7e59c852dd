"""Training that goes on after a failure, on the same ranks."""

import numpy as np
import pytest
import tensorflow as tf

import sirtaki.tensorflow as hvd
from sirtaki import Error


def make_variables():
    weight = tf.Variable([[1.0 + hvd.rank()], [2.0]])  # Synchronizing has to make them equal.
    return hvd.elastic.TensorFlowState([weight], batch=0), weight, tf.function(plain_step)


def make_model():
    keras = tf.keras
    start = keras.initializers.Constant(1.0 + hvd.rank())
    model = keras.Sequential([keras.Input((2,)), keras.layers.Dense(1, kernel_initializer=start)])
    model.compile(keras.optimizers.SGD(0.01, momentum=0.9))
    state = hvd.elastic.TensorFlowKerasState(model, batch=0)
    return state, model.trainable_variables[0], tf.function(model_step(model))


def plain_step(weight, inputs):
    with tf.GradientTape() as tape:
        loss = tf.reduce_mean(tf.square(inputs @ weight))
    tape = hvd.DistributedGradientTape(tape)
    weight.assign_sub(0.01 * tape.gradient(loss, weight))


def model_step(model):
    def step(weight, inputs):
        with tf.GradientTape() as tape:
            loss = tf.reduce_mean(tf.square(model(inputs)))
        tape = hvd.DistributedGradientTape(tape)
        gradients = tape.gradient(loss, model.trainable_variables)
        model.optimizer.apply_gradients(zip(gradients, model.trainable_variables))

    return step


def train(state, weight, step, fail_at, failures):
    """Commits every second step; the last rank fails once, and the others learn of it."""
    while state.batch < 8:
        if state.batch == fail_at and not failures:
            failures.append(state.batch)
            if hvd.rank() == hvd.size() - 1:
                raise Error("as if a collective had failed")
        step(weight, tf.fill([2, 2], float(state.batch + hvd.rank())))
        state.batch += 1
        if state.batch % 2 == 0:
            state.commit()
    return weight.numpy()


@pytest.mark.parametrize("make", [make_variables, make_model])
def test_a_failure_leads_back_to_the_last_commit(make):
    runs = []
    for fail_at in (None, 5):
        (state, weight, step), failures, resets = make(), [], []
        state.register_reset_callbacks([lambda to=resets, of=state: to.append(of.batch)])
        runs.append(hvd.elastic.run(train)(state, weight, step, fail_at, failures))
        assert state.batch == 8
        assert resets == ([] if fail_at is None else [4])
    # As if nothing had happened, and the same everywhere.
    np.testing.assert_array_equal(*runs)
    gathered = hvd.allgather(tf.constant(runs[1][None])).numpy()
    assert (gathered == gathered[0]).all()


def test_failures_without_progress_are_raised():
    calls = []

    @hvd.elastic.run
    def hopeless(state):
        calls.append(state.batch)
        raise Error("again")

    with pytest.raises(Error, match="again"):
        hopeless(hvd.elastic.TensorFlowState([tf.Variable(0.0)], batch=1))
    assert calls == [1, 1, 1]
    hvd.barrier()
