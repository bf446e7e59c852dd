"""The gradients of collectives, and training with them."""

import numpy as np
import pytest
import tensorflow as tf

import sirtaki.tensorflow as hvd


def eagerly(function, value):
    value = tf.constant(value)
    with tf.GradientTape() as tape:
        tape.watch(value)
        result = function(value)
    return tape.gradient(result, value).numpy()


def in_function(function, value):
    @tf.function
    def gradient(value):
        with tf.GradientTape() as tape:
            tape.watch(value)
            result = function(value)
        return tape.gradient(result, value)

    return gradient(tf.constant(value)).numpy()


def in_session(function, value):
    with tf.Graph().as_default(), tf.compat.v1.Session() as session:
        value = tf.constant(value)
        return session.run(tf.gradients(function(value), value)[0])


@pytest.fixture(params=[eagerly, in_function, in_session])
def gradient(request):
    return request.param


def test_allreduce(gradient):
    weight = float(hvd.rank() + 1)
    result = gradient(lambda x: weight * hvd.allreduce(x, op=hvd.Sum), np.float32([1, 2]))
    assert result.tolist() == [sum(range(1, hvd.size() + 1))] * 2


def test_grouped_allreduce(gradient):
    def group(x):
        first, second = hvd.grouped_allreduce([x, 2 * x], op=hvd.Average)
        return tf.reduce_sum(first) + tf.reduce_sum(second)

    assert gradient(group, np.float32([1, 2])).tolist() == [3, 3]


def test_allgather(gradient):
    def weighted(x):
        gathered = hvd.allgather(x)
        rows = tf.range(tf.shape(gathered)[0])
        return tf.reduce_sum(tf.cast(rows, tf.float32)[:, None] * gathered)

    rank = hvd.rank()
    result = gradient(weighted, np.ones([rank + 1, 2], np.float32))
    begin = sum(range(1, rank + 1))
    assert result[:, 0].tolist() == list(range(begin, begin + rank + 1))


def test_broadcast(gradient):
    result = gradient(lambda x: hvd.broadcast(x, 0), np.float32([1, 2]))
    assert result.tolist() == [float(hvd.rank() == 0)] * 2


def test_alltoall(gradient):
    weight = float(hvd.rank() + 1)
    splits = [1] * hvd.size()
    # The last row goes to no rank.
    value = np.ones([hvd.size() + 1, 2], np.float32)
    result = gradient(lambda x: weight * hvd.alltoall(x, splits)[0], value)
    assert result[:, 0].tolist() == [*range(1, hvd.size() + 1), 0]


@pytest.mark.parametrize("op", [hvd.Sum, hvd.Average])
def test_reducescatter(gradient, op):
    weight = float(hvd.rank() + 1)
    value = np.ones([2 * hvd.size(), 2], np.float32)
    result = gradient(lambda x: weight * hvd.reducescatter(x, op=op), value)
    expected = np.repeat(np.arange(1, hvd.size() + 1), 2) * (hvd.size() if op == hvd.Sum else 1)
    assert result[:, 0].tolist() == expected.tolist()


def data():
    generator = np.random.default_rng(1)
    x = generator.normal(size=[8 * hvd.size(), 6]).astype(np.float32)
    return x, (x @ generator.normal(size=[6, 3])).astype(np.float32)


def weights():
    generator = np.random.default_rng(2)
    shapes = {"first": [6, 5], "second": [5, 3]}
    return [
        tf.Variable(generator.normal(size=shape).astype(np.float32), name=name)
        for name, shape in shapes.items()
    ]


def loss_of(variables, x, y):
    return tf.reduce_mean(tf.square(tf.tanh(x @ variables[0]) @ variables[1] - y))


def trained(step, variables, batches):
    for x, y in batches:
        for variable, gradient in zip(variables, step(x, y)):
            variable.assign_sub(0.1 * gradient)
    return [variable.numpy() for variable in variables]


def plain():
    """What one process with all data learns."""
    variables, (x, y) = weights(), data()

    def step(x, y):
        with tf.GradientTape() as tape:
            loss = loss_of(variables, x, y)
        return tape.gradient(loss, variables)

    return trained(step, variables, [(x, y)] * 4)


def share():
    x, y = data()
    return x[hvd.rank() :: hvd.size()], y[hvd.rank() :: hvd.size()]


@pytest.mark.parametrize(
    "options",
    [
        {},
        {"groups": 1},
        {"num_groups": 2},
        {"gradient_predivide_factor": 2.0},
        {"compression": hvd.Compression.fp16},
    ],
    ids=str,
)
@pytest.mark.parametrize("wrap", [lambda f: f, tf.function], ids=["eager", "function"])
@pytest.mark.filterwarnings("ignore:num_groups:DeprecationWarning")
def test_the_tape_learns_what_one_process_does(options, wrap):
    variables = weights()

    @wrap
    def step(x, y):
        with tf.GradientTape() as tape:
            loss = loss_of(variables, x, y)
        return hvd.DistributedGradientTape(tape, **options).gradient(loss, variables)

    learned = trained(step, variables, [share()] * 4)
    exact = "compression" not in options
    for mine, expected in zip(learned, plain()):
        np.testing.assert_allclose(
            mine, expected, rtol=1e-5 if exact else 1e-2, atol=1e-6 if exact else 1e-2
        )


def test_an_optimizer_in_a_session_learns_what_one_process_does():
    with tf.Graph().as_default(), tf.compat.v1.Session() as session:
        variables, (x, y) = weights(), share()
        optimizer = tf.compat.v1.train.GradientDescentOptimizer(0.1)
        optimizer = hvd.DistributedOptimizer(optimizer)
        train = optimizer.minimize(loss_of(variables, x, y), var_list=variables)
        session.run(tf.compat.v1.global_variables_initializer())
        session.run(hvd.broadcast_global_variables(0))
        for _ in range(4):
            session.run(train)
        learned = session.run(variables)
    for mine, expected in zip(learned, plain()):
        np.testing.assert_allclose(mine, expected, rtol=1e-5, atol=1e-6)


def test_batches_that_are_added_up_in_a_session():
    with tf.Graph().as_default(), tf.compat.v1.Session() as session:
        variables, (x, y) = weights(), share()
        given = tf.compat.v1.placeholder(tf.int32, [])
        rows = tf.strided_slice(x, [given], [len(x)], [2])
        wanted = tf.strided_slice(y, [given], [len(y)], [2])
        optimizer = hvd.DistributedOptimizer(
            tf.compat.v1.train.GradientDescentOptimizer(0.1),
            backward_passes_per_step=2,
            average_aggregated_gradients=True,
        )
        train = optimizer.minimize(loss_of(variables, rows, wanted), var_list=variables)
        session.run(tf.compat.v1.global_variables_initializer())
        session.run(tf.compat.v1.local_variables_initializer())
        for number in range(8):
            session.run(train, {given: number % 2})
        learned = session.run(variables)
    for mine, expected in zip(learned, plain()):
        np.testing.assert_allclose(mine, expected, rtol=1e-4, atol=1e-5)


def test_ranks_may_list_variables_in_opposite_orders():
    variables = weights()
    order = variables if hvd.rank() % 2 else variables[::-1]

    @tf.function
    def step():
        with tf.GradientTape() as tape:
            loss = sum(tf.reduce_sum(variable) for variable in variables) * (hvd.rank() + 1.0)
        return hvd.DistributedGradientTape(tape, op=hvd.Sum).gradient(loss, order)

    for _ in range(3):
        for gradient in step():
            assert (gradient.numpy() == sum(range(1, hvd.size() + 1))).all()


def test_local_gradients_stay():
    layer, local = (
        tf.keras.layers.Dense(1, use_bias=False),
        tf.keras.layers.Dense(1, use_bias=False),
    )
    x = tf.fill([1, 1], float(hvd.rank() + 1))
    layer.build([None, 1])
    local.build([None, 1])
    with tf.GradientTape() as tape:
        loss = tf.reduce_sum(layer(x)) + tf.reduce_sum(local(x))
    tape = hvd.PartialDistributedGradientTape(
        tape, local_layers=[local], scale_local_gradients=False
    )
    shared, own = tape.gradient(loss, [layer.kernel, local.kernel])
    assert float(shared[0, 0]) == pytest.approx(sum(range(1, hvd.size() + 1)) / hvd.size())
    assert float(own[0, 0]) == hvd.rank() + 1


@pytest.mark.parametrize("dense", [False, True])
@pytest.mark.parametrize("wrap", [lambda f: f, tf.function], ids=["eager", "function"])
def test_slices(dense, wrap):
    table = tf.Variable(tf.zeros([hvd.size() + 1, 2]), name="table")

    @wrap
    def gradient():
        with tf.GradientTape() as tape:
            loss = tf.reduce_sum(tf.gather(table, [hvd.rank(), hvd.size()]))
        return hvd.DistributedGradientTape(tape, sparse_as_dense=dense, op=hvd.Sum).gradient(
            loss, table
        )

    result = gradient()
    assert isinstance(result, tf.IndexedSlices) != dense
    total = tf.convert_to_tensor(result).numpy()
    assert total[:, 0].tolist() == [1] * hvd.size() + [hvd.size()]


def test_statistics_of_all_ranks_batches():
    x = np.random.default_rng(3).normal(size=[4 * hvd.size(), 3]).astype(np.float32)
    mine = hvd.SyncBatchNormalization()(x[4 * hvd.rank() : 4 * hvd.rank() + 4], training=True)
    alone = tf.keras.layers.BatchNormalization()(x, training=True)
    np.testing.assert_allclose(hvd.allgather(mine), alone, rtol=1e-3, atol=1e-4)
