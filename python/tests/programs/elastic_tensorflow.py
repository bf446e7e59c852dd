"""A function of TensorFlow that is traced once, in a job whose workers come and go."""

import tensorflow as tf
import turns

import sirtaki.tensorflow as hvd
from sirtaki._core import job

tf.config.threading.set_intra_op_parallelism_threads(1)
tf.config.threading.set_inter_op_parallelism_threads(1)
hvd.init()

# Every process begins with values of its own.
start = 10.0 * job.round_number() + hvd.rank()
weight, own = tf.Variable([start]), tf.Variable([1.0])
table = tf.Variable([[start], [start]])
normal = hvd.SyncBatchNormalization(momentum=0.0)
normal.build([None, 1])
model = tf.keras.Sequential(
    [tf.keras.Input([1]), tf.keras.layers.Dense(1, use_bias=False, kernel_initializer="ones")]
)
model.compile(hvd.DistributedOptimizer(tf.keras.optimizers.SGD(0.25, momentum=0.5)))


@tf.function
def step(factor, place):
    with tf.GradientTape() as tape:
        loss = tf.reduce_sum(factor * (weight + 6.0 * own + tf.gather(table, [1])))
    tape = hvd.DistributedGradientTape(tape)
    tape.register_local_source(own)
    of_weight, of_own, of_table = tape.gradient(loss, [weight, own, table])
    weight.assign_sub(0.25 * of_weight)
    table.scatter_sub(tf.IndexedSlices(0.25 * of_table.values, of_table.indices))
    normal(tf.fill([2, 1], place), training=True)
    with tf.GradientTape() as tape:
        loss = tf.reduce_sum(model(tf.reshape(factor, [1, 1])))
    variables = model.trainable_variables
    model.optimizer.apply_gradients(zip(tape.gradient(loss, variables), variables))
    return of_own


@tf.function
def gradients(values):
    with tf.GradientTape() as tape:
        tape.watch(values)
        every = tf.reduce_sum(hvd.allgather(values, name="every") ** 2)
        first = tf.reduce_sum(hvd.broadcast(values, 0, name="first"))
        parts = tf.reduce_sum(hvd.reducescatter(tf.repeat(values, 6), op=hvd.Sum, name="parts"))
    return tape.gradient([every, first, parts], values)


class State(hvd.elastic.TensorFlowKerasState):
    """A model and what is beside it: both kinds of state at once."""

    plain = hvd.elastic.TensorFlowState([weight, table])

    def save(self):
        super().save()
        self.plain.save()

    def restore(self):
        super().restore()
        self.plain.restore()

    def sync(self):
        super().sync()
        self.plain.sync()


def check(of_own, state):
    """What follows from the present number of workers."""
    size, rank = hvd.size(), hvd.rank()
    assert abs(float(of_own[0]) - 6 * turns.factor() / size) < 1e-5, (of_own, state.turns)
    assert abs(float(normal.moving_mean[0]) - (size - 1)) < 1e-5, (normal.moving_mean, state.turns)
    of_values = float(gradients(tf.constant([rank + 1.0]))[0])
    expected = 2 * (rank + 1) + (rank == 0) + 6 * size
    assert abs(of_values - expected) < 1e-4, (of_values, expected, state.turns)
    values = [*weight.numpy(), *table.numpy()[:, 0], *model.get_weights()[0][0]]
    values += [float(tf.reduce_sum(one)) for one in model.optimizer.variables]
    assert hvd.allgather_object(values) == [values] * size, state.turns


@hvd.elastic.run
def train(state):
    turns.begin(state)
    while turns.goes_on(state):
        turns.before_step(state)
        of_own = step(tf.constant(turns.factor(), tf.float32), tf.constant(2.0 * hvd.rank()))
        turns.after_step(state)
        check(of_own, state)
        turns.commit(state)


state = State(model, turns=[])
train(state)
expected = 10.0 - 0.25 * turns.steps(state)
assert abs(float(weight[0]) - expected) < 0.01, (weight, expected)
assert abs(float(table[1, 0]) - expected) < 0.01 and float(table[0, 0]) == 10, (table, expected)
assert int(model.optimizer.iterations) == turns.steps(state)
assert step.experimental_get_tracing_count() == 1
print("all well", flush=True)
