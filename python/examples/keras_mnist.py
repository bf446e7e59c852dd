"""Digits with Keras: KERAS_BACKEND=jax sirtaki run -n 2 -- python keras_mnist.py"""

import argparse
import os

import numpy as np

os.environ.setdefault("KERAS_BACKEND", "tensorflow")

import keras
from digits import load

import sirtaki
import sirtaki.keras as together

parser = argparse.ArgumentParser()
parser.add_argument("--batch-size", type=int, default=64, help="images per step of a worker")
parser.add_argument("--lr", type=float, default=0.001, help="learning rate of one worker")
parser.add_argument("--epochs", type=int, default=1)
parser.add_argument("--steps", type=int, default=0, help="end an epoch after so many steps")
parser.add_argument("--dropout", type=float, default=0.25)
parser.add_argument("--seed", type=int, default=42)
arguments = parser.parse_args()


together.init()
rank, size = together.rank(), together.size()
keras.utils.set_random_seed(arguments.seed)
model = keras.Sequential(
    [
        keras.Input((28, 28, 1)),
        keras.layers.Conv2D(16, 3, activation="relu"),
        keras.layers.MaxPooling2D(),
        keras.layers.Conv2D(32, 3, activation="relu"),
        keras.layers.MaxPooling2D(),
        keras.layers.Flatten(),
        keras.layers.Dropout(arguments.dropout),
        keras.layers.Dense(10),
    ]
)
model = sirtaki.data_parallel(model)
model.compile(
    optimizer=keras.optimizers.Adam(arguments.lr * size),
    loss=keras.losses.SparseCategoricalCrossentropy(from_logits=True),
    metrics=["accuracy"],
)


class Losses(keras.callbacks.Callback):
    """Prints the mean loss so far."""

    def on_train_batch_end(self, batch: int, logs: dict[str, float]) -> None:
        """Called after every step."""
        if (batch + 1) % 10 == 0:
            mean = float(together.allreduce(logs["loss"], name="loss"))
            if rank == 0:
                print(f"step {batch + 1} loss {mean:.6f}", flush=True)


# The same order on all workers, of which each takes its part.
images, labels = load("train")
order = np.random.default_rng(arguments.seed).permutation(len(images))[rank::size]
steps = len(images) // size // arguments.batch_size
steps = min(arguments.steps or steps, steps)
sirtaki.describe(
    model="cnn",
    batch_per_worker=arguments.batch_size,
    lr=arguments.lr * size,
    epochs=arguments.epochs,
    seed=arguments.seed,
)
model.fit(  # and reports its progress
    images[order],
    labels[order],
    batch_size=arguments.batch_size,
    epochs=arguments.epochs,
    steps_per_epoch=steps,
    shuffle=False,
    verbose=0,
    callbacks=[Losses()],
)

images, labels = load("t10k")
_, share = model.evaluate(images[rank::size], labels[rank::size], batch_size=500, verbose=0)
accuracy = float(together.allreduce(share, name="test"))
done = arguments.epochs * steps
sirtaki.progress(done, done, test_accuracy=accuracy)
if rank == 0:
    print(f"test accuracy {accuracy:.4f}")
