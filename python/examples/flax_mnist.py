"""Digits with Flax and optax: sirtaki run -n 2 -- python flax_mnist.py"""

import argparse
import itertools
import math
from typing import Any

import jax
import optax
from digits import load
from flax import linen

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


class Network(linen.Module):
    """Two convolutions and a dense layer."""

    @linen.compact
    def __call__(self, images: jax.Array) -> jax.Array:
        """How well each digit fits each image."""
        for features in (16, 32):
            images = linen.relu(linen.Conv(features, (3, 3), padding="VALID")(images))
            images = linen.max_pool(images, (2, 2), (2, 2))
        return linen.Dense(10)(images.reshape(len(images), -1))


model = Network()
data = load("train")
parameters = model.init(jax.random.key(arguments.seed), data[0][:1])
optimizer = hvd.DistributedOptimizer(optax.sgd(arguments.lr * hvd.size(), momentum=0.9))
parameters = hvd.broadcast_parameters(parameters, root_rank=0)
state = optimizer.init(parameters)


def loss(parameters: Any, images: Any, labels: Any) -> jax.Array:
    """The mean cross entropy of a batch."""
    fits = model.apply(parameters, images)
    return optax.softmax_cross_entropy_with_integer_labels(fits, labels).mean()


@jax.jit
def train(parameters: Any, state: Any, images: Any, labels: Any) -> tuple[Any, Any, jax.Array]:
    """A step, which averages gradients over all workers."""
    value, gradients = jax.value_and_grad(loss)(parameters, images, labels)
    updates, state = optimizer.update(gradients, state, parameters)
    return optax.apply_updates(parameters, updates), state, value


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
        parameters, state, value = train(parameters, state, images, labels)
        step += 1
        if step % 10 == 0:
            mean = hvd.all_reduce(value, name="loss")
            seen = step * arguments.batch_size * hvd.size()
            sirtaki.progress(step, steps, samples=seen, loss=mean)
            if hvd.rank() == 0:
                print(f"step {step} loss {mean:.6f}", flush=True)

images, labels = load("t10k")
mine = shard((images, labels), last="keep")
right = (model.apply(parameters, mine[0]).argmax(1) == mine[1]).sum()
total = hvd.all_reduce(right, op=hvd.Sum)
accuracy = float(total / len(labels))
sirtaki.progress(step, steps, test_accuracy=accuracy)
if hvd.rank() == 0:
    print(f"test accuracy {accuracy:.4f}")
