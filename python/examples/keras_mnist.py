"""Digits with Keras: KERAS_BACKEND=jax sirtaki run -n 2 -- python keras_mnist.py"""

import argparse
import gzip
import os
from pathlib import Path

import numpy as np

os.environ.setdefault("KERAS_BACKEND", "tensorflow")

import keras

import sirtaki
import sirtaki.keras as together

parser = argparse.ArgumentParser()
parser.add_argument("--batch-size", type=int, default=64, help="images per step of a worker")
parser.add_argument("--lr", type=float, default=0.001, help="learning rate of one worker")
parser.add_argument("--epochs", type=int, default=1)
parser.add_argument("--steps", type=int, default=0, help="end an epoch after so many steps")
parser.add_argument("--dropout", type=float, default=0.25)
parser.add_argument("--seed", type=int, default=42)
parser.add_argument("--data", type=Path, default=Path(__file__).parents[2] / "data" / "mnist")
arguments = parser.parse_args()


def read(name: str, header: int) -> np.ndarray:
    """What a file has after its header."""
    with gzip.open(arguments.data / f"{name}-ubyte.gz") as file:
        return np.frombuffer(file.read(), np.uint8, offset=header)


def load(part: str) -> tuple[np.ndarray, np.ndarray]:
    """Images, with numbers from 0 to 1, and their digits."""
    images = read(f"{part}-images-idx3", 16).reshape(-1, 28, 28, 1)
    return images.astype("float32") / 255, read(f"{part}-labels-idx1", 8).astype("int32")


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
model.fit(
    images[order],
    labels[order],
    batch_size=arguments.batch_size,
    epochs=arguments.epochs,
    steps_per_epoch=min(arguments.steps or steps, steps),
    shuffle=False,
    verbose=0,
    callbacks=[Losses()],
)

images, labels = load("t10k")
_, share = model.evaluate(images[rank::size], labels[rank::size], batch_size=500, verbose=0)
accuracy = float(together.allreduce(share, name="test"))
if rank == 0:
    print(f"test accuracy {accuracy:.4f}")
