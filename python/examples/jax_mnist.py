"""Digits with plain JAX: sirtaki run -n 2 -- python jax_mnist.py"""

import argparse
import itertools
import math
from typing import Any

import jax
import jax.numpy as jnp
from digits import load
from jax import lax

import sirtaki
import sirtaki.jax as hvd
from sirtaki.data import Partition, batches, shard

parser = argparse.ArgumentParser()
parser.add_argument("--batch-size", type=int, default=64, help="images per step of a worker")
parser.add_argument("--lr", type=float, default=0.005, help="learning rate of one worker")
parser.add_argument("--epochs", type=int, default=1)
parser.add_argument("--steps", type=int, default=0, help="end after so many steps")
parser.add_argument("--seed", type=int, default=42)
arguments = parser.parse_args()

hvd.init()
RATE, MOMENTUM = arguments.lr * hvd.size(), 0.9


def start(key: jax.Array) -> dict[str, jax.Array]:
    """Weights of two convolutions and a dense layer."""
    shapes = {"first": (3, 3, 1, 16), "second": (3, 3, 16, 32), "dense": (5 * 5 * 32, 10)}
    keys = jax.random.split(key, len(shapes))
    scaled = jax.nn.initializers.he_normal()
    return {name: scaled(key, shape) for key, (name, shape) in zip(keys, shapes.items())}


def scores(weights: Any, images: Any) -> jax.Array:
    """How well each digit fits each image."""
    for name in ("first", "second"):
        layout = ("NHWC", "HWIO", "NHWC")
        images = lax.conv_general_dilated(
            images, weights[name], (1, 1), "VALID", dimension_numbers=layout
        )
        window = (1, 2, 2, 1)
        images = lax.reduce_window(jax.nn.relu(images), -jnp.inf, lax.max, window, window, "VALID")
    return images.reshape(len(images), -1) @ weights["dense"]


def loss(weights: Any, images: Any, labels: Any) -> jax.Array:
    """The mean cross entropy of a batch."""
    fits = jax.nn.log_softmax(scores(weights, images))
    return -jnp.take_along_axis(fits, labels[:, None], axis=1).mean()


@jax.jit
def train(weights: Any, speeds: Any, images: Any, labels: Any) -> tuple[Any, Any, jax.Array]:
    """A step: the only difference from one process is `hvd.` before `value_and_grad`."""
    value, gradients = hvd.value_and_grad(loss)(weights, images, labels)
    speeds = jax.tree.map(lambda speed, slope: MOMENTUM * speed + slope, speeds, gradients)
    weights = jax.tree.map(lambda weight, speed: weight - RATE * speed, weights, speeds)
    return weights, speeds, value


@jax.jit
def recognised(weights: Any, images: Any, labels: Any) -> jax.Array:
    """How many images are recognised."""
    return (scores(weights, images).argmax(1) == labels).sum()


weights = hvd.broadcast_parameters(start(jax.random.key(arguments.seed)))
speeds = jax.tree.map(jnp.zeros_like, weights)
data = load("train")
plan = Partition(data[1], arguments.batch_size, seed=arguments.seed, last="drop")
sirtaki.describe(
    model="cnn",
    batch_per_worker=arguments.batch_size,
    lr=arguments.lr * hvd.size(),
    epochs=arguments.epochs,
    seed=arguments.seed,
)
step, steps = 0, arguments.steps or arguments.epochs * len(plan)
for epoch in range(math.ceil(steps / len(plan))):
    plan.set_epoch(epoch)
    for images, labels in itertools.islice(batches(data, plan), steps - step):
        weights, speeds, value = train(weights, speeds, images, labels)
        step += 1
        if step % 10 == 0:
            seen = step * arguments.batch_size * hvd.size()
            sirtaki.progress(step, steps, samples=seen, loss=value)
            if hvd.rank() == 0:
                print(f"step {step} loss {value:.6f}", flush=True)

images, labels = load("t10k")
mine = shard((images, labels), last="keep")
right = hvd.all_reduce(recognised(weights, *mine), op=hvd.Sum)
accuracy = float(right / len(labels))
sirtaki.progress(step, steps, test_accuracy=accuracy)
if hvd.rank() == 0:
    print(f"test accuracy {accuracy:.4f}")
