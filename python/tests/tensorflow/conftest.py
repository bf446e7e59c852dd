"""Every file here is run by several ranks at once, with one process of pytest per rank.

They make the same calls in the same order, so run it with ``-x``: a rank whose test fails then
leaves the job, and the others learn of it instead of waiting.
"""

import pytest
import tensorflow as tf

import sirtaki.tensorflow as hvd


def pytest_sessionstart(session):
    tf.config.threading.set_intra_op_parallelism_threads(1)
    tf.config.threading.set_inter_op_parallelism_threads(2)
    hvd.init()


@pytest.fixture(autouse=True)
def seed():
    tf.random.set_seed(1234)


@pytest.fixture
def several():
    if hvd.size() == 1:
        pytest.skip("needs several ranks")


def _eagerly(function):
    return lambda *args: tf.nest.map_structure(lambda value: value.numpy(), function(*args))


def _in_function(function):
    return _eagerly(tf.function(function))


def _in_session(function):
    def run(*args):
        with tf.Graph().as_default(), tf.compat.v1.Session() as session:
            given = [tf.constant(arg) for arg in args]
            return session.run(function(*given))

    return run


@pytest.fixture(params=[_eagerly, _in_function, _in_session], ids=["eager", "function", "session"])
def mode(request):
    """Has a function of tensors return arrays, computed in one of TensorFlow's three ways."""
    return request.param
