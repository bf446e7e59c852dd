"""Whole jobs of TensorFlow and Keras as users start them: tutorials, strategies, TensorFlow 1."""

import gzip
import json
import os
import re
import subprocess
import sys
import textwrap
from pathlib import Path

import numpy as np
import pytest

from sirtaki._launcher import find_command

DATA = Path(__file__).resolve().parents[2] / "data" / "mnist"


@pytest.fixture
def run(tmp_path):
    """Runs a script on ranks; returns its exit code and what each rank printed."""

    def run(script, ranks=2, options=(), **variables):
        file = tmp_path / "script.py"
        file.write_text(textwrap.dedent(script))
        command = [find_command(), "run", "-n", str(ranks), "--oversubscribe", *options, "--"]
        environment = {
            **os.environ,
            "TF_CPP_MIN_LOG_LEVEL": "3",
            "KERAS_BACKEND": "tensorflow",
            "OMP_NUM_THREADS": "1",
            **variables,
        }
        done = subprocess.run(
            [*command, sys.executable, str(file)],
            check=False,
            env=environment,
            cwd=tmp_path,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            timeout=300,
        )
        return done.returncode, done.stdout

    return run


def said(text, what):
    """What ranks said about something, by rank."""
    return dict(re.findall(rf"^\[(\d+)\] {what} (.*)$", text, re.M))


SHOW = """
import os
print("config", os.environ.get("TF_CONFIG"))
"""


def test_every_rank_knows_where_workers_would_listen(run):
    script = SHOW + textwrap.dedent("""
        import json, socket
        config = json.loads(os.environ["TF_CONFIG"])
        address, port = config["cluster"]["worker"][config["task"]["index"]].split(":")
        # As TensorFlow does it, also on its port of all addresses.
        server = socket.create_server(("", int(port)))
        print("address", address)
    """)
    code, text = run(script, ranks=3)
    assert code == 0, text
    configs = {int(rank): json.loads(config) for rank, config in said(text, "config").items()}
    workers = configs[0]["cluster"]["worker"]
    assert len(set(workers)) == 3
    for rank, config in configs.items():
        assert config == {
            "cluster": {"worker": workers},
            "task": {"type": "worker", "index": rank},
        }
    assert set(said(text, "address").values()) == {"127.0.0.1"}


@pytest.mark.parametrize(
    ("options", "variables", "expected"),
    [
        ([], {"TF_CONFIG": "mine"}, "mine"),
        (["--env", "TF_CONFIG=mine"], {}, "mine"),
        (["--horovod"], {}, "None"),
        (["--tf1"], {}, "None"),
    ],
)
def test_who_does_not_want_the_variable_does_not_get_it(run, options, variables, expected):
    code, text = run(SHOW, options=options, **variables)
    assert code == 0 and said(text, "config") == {"0": expected, "1": expected}, text


def test_a_multi_worker_strategy_runs_unchanged(run):
    code, text = run("""
        import json, os
        import numpy as np, tensorflow as tf
        workers = len(json.loads(os.environ["TF_CONFIG"])["cluster"]["worker"])
        strategy = tf.distribute.MultiWorkerMirroredStrategy()
        assert strategy.num_replicas_in_sync == workers == 2
        with strategy.scope():
            weights = tf.Variable(tf.zeros((4, 1)))

        @tf.function
        def step(batch):
            def on_replica(batch):
                with tf.GradientTape() as tape:
                    loss = tf.reduce_mean((batch @ weights - 1.0) ** 2)
                gradient = tape.gradient(loss, weights)
                together = tf.distribute.get_replica_context().all_reduce("MEAN", gradient)
                weights.assign_sub(0.1 * together)
            strategy.run(on_replica, (batch,))

        data = tf.data.Dataset.from_tensor_slices(np.eye(4, dtype="float32").repeat(8, 0)).batch(8)
        for batch in strategy.experimental_distribute_dataset(data):
            step(batch)
        print("weights", weights.numpy().astype("float64").round(6).ravel().tolist())
    """)
    assert code == 0, text
    # Every batch moves one weight by 0.1 * 2, whoever has which half of it.
    assert said(text, "weights") == {"0": str([0.2] * 4), "1": str([0.2] * 4)}, text


def test_a_mirrored_strategy_runs_unchanged(run):
    code, text = run("""
        import numpy as np, tensorflow as tf
        strategy = tf.distribute.MirroredStrategy()
        with strategy.scope():
            model = tf.keras.Sequential([tf.keras.layers.Input((4,)), tf.keras.layers.Dense(1)])
            model.compile(optimizer="sgd", loss="mse")
        model.fit(np.ones((8, 4)), np.ones((8, 1)), epochs=2, verbose=0)
        print("replicas", strategy.num_replicas_in_sync)
    """)
    assert code == 0 and said(text, "replicas") == {"0": "1", "1": "1"}, text


def test_parameter_servers_and_their_coordinator_are_roles_of_the_launcher(run):
    code, text = run(
        """
        import tensorflow as tf

        resolver = tf.distribute.cluster_resolver.TFConfigClusterResolver()
        if resolver.task_type != "chief":
            tf.distribute.Server(
                resolver.cluster_spec(), job_name=resolver.task_type, task_index=resolver.task_id
            ).join()
        strategy = tf.distribute.ParameterServerStrategy(resolver)
        coordinator = tf.distribute.coordinator.ClusterCoordinator(strategy)
        with strategy.scope():
            total = tf.Variable(0.0)

        @tf.function
        def step():
            total.assign_add(1.0)

        for _ in range(5):
            coordinator.schedule(step)
        coordinator.join()
        print("total", total.numpy())
        """,
        ranks=1,
        options=["--servers", "1", "--coordinator"],
    )
    assert "total 5.0" in text, text
    assert code == 0, text


VERSION_1 = """
    import tensorflow as tf
    import horovod.tensorflow as hvd

    hvd.init()
    config = tf.ConfigProto()
    config.gpu_options.visible_device_list = str(hvd.local_rank())
    tf.set_random_seed(hvd.rank())
    x = tf.placeholder(tf.float32, [None, 4])
    weights = tf.get_variable("weights", [4, 1])
    loss = tf.reduce_mean((tf.matmul(x, weights) - 1.0) ** 2)
    optimizer = tf.train.AdagradOptimizer(0.1 * hvd.size())
    optimizer = hvd.DistributedOptimizer(optimizer)
    step = tf.train.get_or_create_global_step()
    train = optimizer.minimize(loss, global_step=step)
    hooks = [hvd.BroadcastGlobalVariablesHook(0), tf.train.StopAtStepHook(last_step=10)]
    folder = "checkpoints" if hvd.rank() == 0 else None
    with tf.train.MonitoredTrainingSession(
        checkpoint_dir=folder, config=config, hooks=hooks
    ) as session:
        while not session.should_stop():
            batch = [[float(hvd.rank() + 1)] * 4]
            _, found = session.run([train, weights], feed_dict={x: batch})
    print("weights", found.ravel().tolist())
"""


def test_a_script_of_tensorflow_1(run, tmp_path):
    own = tmp_path / "own"
    own.mkdir()
    (own / "sitecustomize.py").write_text("print('config own sitecustomize')\n")
    options = ["--horovod", "--tf1"]
    code, text = run(VERSION_1, options=options, PYTHONPATH=str(own))
    assert code == 0, text
    found = said(text, "weights")
    assert found["0"] == found["1"] and (tmp_path / "checkpoints" / "checkpoint").exists()
    assert said(text, "config") == {"0": "own sitecustomize", "1": "own sitecustomize"}


def test_without_the_option_a_hint_names_it(run):
    code, text = run(VERSION_1, ranks=1, options=["--horovod"])
    assert code != 0
    assert "hint: tf.ConfigProto belongs to TensorFlow 1" in text and "--horovod --tf1" in text, (
        text
    )


def images(part, count):
    def read(kind, header):
        with gzip.open(DATA / f"{part}-{kind}-ubyte.gz") as file:
            return np.frombuffer(file.read(), np.uint8, offset=header)

    return read("images-idx3", 16).reshape(-1, 28, 28)[:count], read("labels-idx1", 8)[:count]


TUTORIAL = """
    from __future__ import print_function
    import math
    import keras
    from keras.models import Sequential
    from keras.layers import Dense, Dropout, Flatten
    from keras.layers import Conv2D, MaxPooling2D
    from keras import backend as K
    import numpy as np
    import tensorflow as tf
    import {module} as hvd

    hvd.init()
    {session}
    batch_size, num_classes = 32, 10
    epochs = int(math.ceil(4.0 / hvd.size()))
    with np.load("mnist.npz") as data:
        x_train, y_train, x_test, y_test = [data[name] for name in data.files]
    shape = (28, 28, 1)
    if K.image_data_format() == "channels_first":
        shape = (1, 28, 28)
    x_train = x_train.reshape(-1, *shape).astype("float32") / 255
    x_test = x_test.reshape(-1, *shape).astype("float32") / 255
    y_train = keras.utils.to_categorical(y_train, num_classes)
    y_test = keras.utils.to_categorical(y_test, num_classes)
    model = Sequential()
    model.add(Conv2D(8, kernel_size=(3, 3), activation="relu", input_shape=shape))
    model.add(Conv2D(16, (3, 3), activation="relu"))
    model.add(MaxPooling2D(pool_size=(2, 2)))
    model.add(Dropout(0.25))
    model.add(Flatten())
    model.add(Dense(num_classes, activation="softmax"))
    opt = keras.optimizers.Adadelta(1.0 * hvd.size())
    opt = hvd.DistributedOptimizer(opt)
    model.compile(loss=keras.losses.categorical_crossentropy, optimizer=opt, metrics=["accuracy"])
    callbacks = [
        hvd.callbacks.BroadcastGlobalVariablesCallback(0),
        hvd.callbacks.MetricAverageCallback(),
        hvd.callbacks.LearningRateWarmupCallback(initial_lr=1.0 * hvd.size(), warmup_epochs=1),
    ]
    if hvd.rank() == 0:
        callbacks.append(keras.callbacks.ModelCheckpoint("./checkpoint-{{epoch}}.h5"))
    mine = slice(hvd.rank(), None, hvd.size())
    model.fit(x_train[mine], y_train[mine], batch_size=batch_size, callbacks=callbacks,
              epochs=epochs, verbose=0, validation_data=(x_test, y_test))
    score = model.evaluate(x_test, y_test, verbose=0)
    print("score", score[0], score[1])
"""

SESSION = """config = tf.ConfigProto()
    config.gpu_options.allow_growth = True
    config.gpu_options.visible_device_list = str(hvd.local_rank())
    K.set_session(tf.Session(config=config))"""


@pytest.mark.parametrize(
    ("module", "options", "session"),
    [
        ("horovod.keras", ["--horovod", "--tf1"], SESSION),
        ("horovod.tensorflow.keras", ["--horovod"], ""),
    ],
)
def test_the_tutorial_of_keras(run, tmp_path, module, options, session):
    x, y = images("train", 512)
    x_test, y_test = images("t10k", 256)
    np.savez(tmp_path / "mnist.npz", x, y, x_test, y_test)
    code, text = run(TUTORIAL.format(module=module, session=session), options=options)
    assert code == 0, text
    scores = said(text, "score")
    assert scores["0"] == scores["1"] and float(scores["0"].split()[1]) > 0.3, text
    assert (tmp_path / "checkpoint-2.h5").exists()
