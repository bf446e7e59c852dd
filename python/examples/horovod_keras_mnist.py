"""Digits with Horovod's Keras: sirtaki run -n 2 --horovod -- python horovod_keras_mnist.py"""

import argparse

import horovod.keras as hvd
import keras
import numpy as np
from digits import load

import sirtaki
from sirtaki.keras.callbacks import ProgressCallback

parser = argparse.ArgumentParser()
parser.add_argument("--batch-size", type=int, default=64, help="images per step of a worker")
parser.add_argument("--lr", type=float, default=0.001, help="learning rate of one worker")
parser.add_argument("--epochs", type=int, default=1)
parser.add_argument("--steps", type=int, default=0, help="end an epoch after so many steps")
parser.add_argument("--seed", type=int, default=42)
arguments = parser.parse_args()

hvd.init()
keras.utils.set_random_seed(arguments.seed)
model = keras.Sequential(
    [
        keras.Input((28, 28, 1)),
        keras.layers.Conv2D(16, 3, activation="relu"),
        keras.layers.MaxPooling2D(),
        keras.layers.Conv2D(32, 3, activation="relu"),
        keras.layers.MaxPooling2D(),
        keras.layers.Flatten(),
        keras.layers.Dense(10),
    ]
)
optimizer = keras.optimizers.Adam(arguments.lr * hvd.size())
model.compile(
    optimizer=hvd.DistributedOptimizer(optimizer),
    loss=keras.losses.SparseCategoricalCrossentropy(from_logits=True),
    metrics=["accuracy"],
)


class Losses(keras.callbacks.Callback):
    """Prints the mean loss so far."""

    def on_train_batch_end(self, batch: int, logs: dict[str, float]) -> None:
        """Called after every step."""
        if (batch + 1) % 10 == 0:
            mean = float(hvd.allreduce(logs["loss"], name="loss"))
            if hvd.rank() == 0:
                print(f"step {batch + 1} loss {mean:.6f}", flush=True)


# The same order on all workers, of which each takes its part.
images, labels = load("train")
order = np.random.default_rng(arguments.seed).permutation(len(images))[hvd.rank() :: hvd.size()]
steps = len(images) // hvd.size() // arguments.batch_size
steps = min(arguments.steps or steps, steps)
sirtaki.describe(
    model="cnn",
    batch_per_worker=arguments.batch_size,
    lr=arguments.lr * hvd.size(),
    epochs=arguments.epochs,
    seed=arguments.seed,
)
model.fit(
    images[order],
    labels[order],
    batch_size=arguments.batch_size,
    epochs=arguments.epochs,
    steps_per_epoch=steps,
    shuffle=False,
    verbose=0,
    callbacks=[
        hvd.callbacks.BroadcastGlobalVariablesCallback(0),
        hvd.callbacks.MetricAverageCallback(),
        ProgressCallback(),
        Losses(),
    ],
)

images, labels = load("t10k")
mine = slice(hvd.rank(), None, hvd.size())
_, share = model.evaluate(images[mine], labels[mine], batch_size=500, verbose=0)
accuracy = float(hvd.allreduce(share, name="test"))
sirtaki.progress(arguments.epochs * steps, arguments.epochs * steps, test_accuracy=accuracy)
if hvd.rank() == 0:
    print(f"test accuracy {accuracy:.4f}")
