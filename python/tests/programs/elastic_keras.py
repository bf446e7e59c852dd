"""``fit`` on any back end of Keras, in a job whose workers come and go."""

import keras
import numpy as np
import turns

import sirtaki
import sirtaki.keras as hvd
from sirtaki._core import job

ON_JAX = keras.backend.backend() == "jax"
hvd.init()
# Every process begins with values of its own.
start = keras.initializers.Constant(10.0 * job.round_number() + hvd.rank())
model = keras.Sequential(
    [
        keras.Input((1,)),
        keras.layers.Dense(1, use_bias=False, kernel_initializer=start),
        keras.layers.Dense(1, kernel_initializer="ones", trainable=False),
    ]
)
optimizer = keras.optimizers.SGD(0.25, momentum=0.5)
callbacks = []
if ON_JAX:
    # The other way to train on all ranks, and a callback that the state makes unnecessary.
    model = sirtaki.data_parallel(model)
    callbacks.append(hvd.callbacks.BroadcastGlobalVariablesCallback(0))
else:
    optimizer = hvd.DistributedOptimizer(optimizer)
model.compile(optimizer, loss=lambda wanted, found: keras.ops.mean(found), jit_compile=ON_JAX)
state = hvd.elastic.KerasState(model, turns=[], batch=0, epoch=0)
try:
    hvd.elastic.KerasState(keras.Sequential([keras.layers.Dense(1)])).sync()
except ValueError as error:
    assert "no variables yet" in str(error) and "hint:" in str(error)
else:
    raise AssertionError("values of others would be lost")


class Turns(keras.callbacks.Callback):
    def on_train_batch_begin(self, batch, logs=None):
        turns.before_step(state)

    def on_train_batch_end(self, batch, logs=None):
        turns.after_step(state)


class Commit(hvd.elastic.CommitStateCallback):
    def _commit(self):
        try:
            super()._commit()
        finally:
            turns.committed[0] = turns.steps(state)


callbacks += [
    hvd.callbacks.MetricAverageCallback(),
    Turns(),
    hvd.elastic.UpdateEpochStateCallback(state),
    hvd.elastic.UpdateBatchStateCallback(state),
    Commit(state),
]


# Beside it, a model of two layers, of which the second has gradients that stay on their rank.
inputs = keras.Input((1,))
layers = [keras.layers.Dense(1, use_bias=False, kernel_initializer="zeros") for _ in range(2)]
beside = keras.Model(inputs, layers[0](inputs) + layers[1](inputs))
beside.compile(
    hvd.PartialDistributedOptimizer(keras.optimizers.SGD(1.0), local_layers=layers[1]),
    loss=lambda wanted, found: keras.ops.mean(found),
    jit_compile=ON_JAX,
)


def check_local_gradients(inputs):
    beside.set_weights([np.zeros((1, 1)), np.zeros((1, 1))])
    beside.fit(inputs[:1], inputs[:1], verbose=0)
    shared, own = (float(values[0, 0]) for values in beside.get_weights())
    assert abs(shared + 1) < 1e-5, (shared, state.turns)
    assert abs(own + turns.factor() / hvd.size()) < 1e-5, (own, state.turns)


@hvd.elastic.run
def train(state):
    turns.begin(state)
    while turns.goes_on(state):
        inputs = np.full((4, 1), turns.factor(), "float32")
        model.fit(inputs, inputs, batch_size=1, epochs=1, callbacks=callbacks, verbose=0)
        variables = [*model.variables, *optimizer.variables]
        values = [keras.ops.convert_to_numpy(one).tolist() for one in variables]
        assert hvd.allgather_object(values) == [values] * hvd.size(), state.turns
        check_local_gradients(inputs)


train(state)
weight, speed = 10.0, 0.0
for _ in range(turns.steps(state)):
    speed = 0.5 * speed - 0.25
    weight += speed
found = float(model.variables[0][0, 0])
assert abs(found - weight) < 0.01 * abs(weight), (found, weight, state.turns)
assert int(optimizer.iterations) == turns.steps(state) and state.epoch > 0
# Resumed epochs are not repeated: at most one batch more for each newcomer that came at their end.
assert turns.steps(state) - 4 * state.epoch <= len(state.turns) // 2, (state.turns, state.epoch)
print("all well", flush=True)
