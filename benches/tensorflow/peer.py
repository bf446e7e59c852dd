"""Keras `model.fit` on TensorFlow as a benchmark peer, by whatever its first argument names:

- `strangers`: processes that do not communicate.
- `in step`: processes that wait for each other after every batch.
- `sirtaki`: sirtaki.keras, with Keras 3.
- `strategy`: MultiWorkerMirroredStrategy, with Keras 2, because `fit` of Keras 3 fails under it.

Orders arrive as lines of JSON over the Unix socket that the second argument names: a work and a number of steps, or `op`
for the cost of one op in a graph of 100. Answers are seconds.
"""

import json
import os
import socket
import sys
import time
import warnings

ROLE = sys.argv[1]
os.environ.update(TF_CPP_MIN_LOG_LEVEL="3", KERAS_BACKEND="tensorflow", CUDA_VISIBLE_DEVICES="")
if ROLE == "strategy":
    os.environ["TF_USE_LEGACY_KERAS"] = "1"

warnings.simplefilter("ignore")

import tensorflow as tf
from work import WORKS

OPS = 100
RUNS = 200


class Strangers:
    def model(self, work):
        keras = tf.keras
        model = work.model(keras)
        loss = keras.losses.SparseCategoricalCrossentropy(from_logits=True)
        model.compile(optimizer=self.optimizer(keras), loss=loss)
        return model

    def optimizer(self, keras):
        return keras.optimizers.SGD(0.01, momentum=0.9)

    def dataset(self, work, steps):
        return tf.data.Dataset.from_tensor_slices(work.data(steps)).batch(work.batch, True)

    def callbacks(self):
        return []


class InStep(Strangers):
    def __init__(self):
        import sirtaki.keras as hvd
        import sirtaki.numpy

        hvd.init()
        self.meet = sirtaki.numpy.barrier

    def callbacks(self):
        return [tf.keras.callbacks.LambdaCallback(on_train_batch_end=lambda *_, **__: self.meet())]


class Sirtaki(Strangers):
    def __init__(self):
        import sirtaki.keras as hvd

        hvd.init()
        self.hvd = hvd

    def optimizer(self, keras):
        return self.hvd.DistributedOptimizer(super().optimizer(keras))


class Strategy(Strangers):
    def __init__(self):
        self.strategy = tf.distribute.MultiWorkerMirroredStrategy()

    def model(self, work):
        with self.strategy.scope():
            return super().model(work)

    def dataset(self, work, steps):
        workers = self.strategy.num_replicas_in_sync
        data = tf.data.Dataset.from_tensor_slices(work.data(steps)).repeat(workers)
        options = tf.data.Options()
        options.experimental_distribute.auto_shard_policy = tf.data.experimental.AutoShardPolicy.OFF
        # The strategy divides every batch, so that a worker gets as much as a stranger.
        return data.batch(work.batch * workers, True).with_options(options)


def chain(link):
    """A function with a graph of many ops, each of which waits for the one before."""

    @tf.function
    def run(tensor):
        for _ in range(OPS):
            tensor = link(tensor)
        return tensor

    return run


def cost_of_op():
    """Seconds of one op of ours that does not communicate, and of an identity, each in a graph of 100."""
    import sirtaki.tensorflow as hvd

    def ours(tensor):
        with tf.control_dependencies([tensor]):
            return tf.cast(hvd.rank_op(), tf.int32)

    def identity(tensor):
        with tf.control_dependencies([tensor]):
            return tf.cast(tf.identity(tensor), tf.int32)

    times = []
    for function in (chain(ours), chain(identity)):
        start = tf.constant(1)
        function(start)
        best = float("inf")
        for _ in range(RUNS):
            began = time.perf_counter()
            function(start)
            best = min(best, time.perf_counter() - began)
        times.append(best / OPS)
    return times


def main():
    tf.config.threading.set_intra_op_parallelism_threads(1)
    tf.config.threading.set_inter_op_parallelism_threads(1)
    systems = {"strangers": Strangers, "in step": InStep, "sirtaki": Sirtaki, "strategy": Strategy}
    system = systems[ROLE]()
    trained = {}

    def answer(order):
        name, steps = order["work"], order["steps"]
        if name == "op":
            return cost_of_op()
        if name not in trained:
            work = WORKS[name]()
            trained[name] = system.model(work), system.dataset(work, steps)
            # Traced, and warm.
            trained[name][0].fit(trained[name][1], epochs=1, verbose=0, callbacks=system.callbacks())
        model, data = trained[name]
        began = time.perf_counter()
        model.fit(data, epochs=1, verbose=0, callbacks=system.callbacks())
        return [time.perf_counter() - began]

    with socket.socket(socket.AF_UNIX) as connection:
        connection.connect(sys.argv[2])
        lines = connection.makefile("rw")
        for line in lines:
            print(json.dumps(answer(json.loads(line))), file=lines, flush=True)


if __name__ == "__main__":
    main()
