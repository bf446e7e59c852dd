"""Digits with TensorFlow's strategies: sirtaki run -n 2 -- python strategy_mnist.py

One process is a MirroredStrategy on all its devices, several are a MultiWorkerMirroredStrategy.
"""

import argparse
from typing import Any

import tensorflow as tf
from digits import load

import sirtaki
import sirtaki.numpy

parser = argparse.ArgumentParser()
parser.add_argument("--devices", type=int, default=2, help="of one process, where there is no GPU")
parser.add_argument("--batch-size", type=int, default=64, help="images per step of a device")
parser.add_argument("--lr", type=float, default=0.001, help="learning rate of one device")
parser.add_argument("--epochs", type=int, default=1)
parser.add_argument("--steps", type=int, default=0, help="end after so many steps")
parser.add_argument("--seed", type=int, default=42)
arguments = parser.parse_args()

# For reports. What the strategy sends goes over TensorFlow's own connections.
sirtaki.numpy.init()
rank, workers = sirtaki.numpy.rank(), sirtaki.numpy.size()
if workers > 1:
    strategy = tf.distribute.MultiWorkerMirroredStrategy()
elif tf.config.list_physical_devices("GPU"):
    strategy = tf.distribute.MirroredStrategy()
else:
    (processor,) = tf.config.list_physical_devices("CPU")
    parts = [tf.config.LogicalDeviceConfiguration() for _ in range(arguments.devices)]
    tf.config.set_logical_device_configuration(processor, parts)
    strategy = tf.distribute.MirroredStrategy([f"CPU:{n}" for n in range(arguments.devices)])
replicas = strategy.num_replicas_in_sync
size, rate = arguments.batch_size * replicas, arguments.lr * replicas

tf.keras.utils.set_random_seed(arguments.seed)
with strategy.scope():
    model = tf.keras.Sequential(
        [
            tf.keras.Input((28, 28, 1)),
            tf.keras.layers.Conv2D(16, 3, activation="relu"),
            tf.keras.layers.MaxPooling2D(2),
            tf.keras.layers.Conv2D(32, 3, activation="relu"),
            tf.keras.layers.MaxPooling2D(2),
            tf.keras.layers.Flatten(),
            tf.keras.layers.Dense(10),
        ]
    )
    optimizer = tf.keras.optimizers.Adam(rate)
    optimizer.build(model.trainable_variables)


@tf.function
def train(images: Any, labels: Any) -> tf.Tensor:
    """A step on all devices, of which each has its part of the batch."""

    def on_device(images: tf.Tensor, labels: tf.Tensor) -> tf.Tensor:
        with tf.GradientTape() as tape:
            scores = model(images, training=True)
            losses = tf.nn.sparse_softmax_cross_entropy_with_logits(labels, scores)
            loss = tf.nn.compute_average_loss(losses, global_batch_size=size)
        gradients = tape.gradient(loss, model.trainable_variables)
        optimizer.apply_gradients(zip(gradients, model.trainable_variables))
        return loss

    parts = strategy.run(on_device, (images, labels))
    return strategy.reduce(tf.distribute.ReduceOp.SUM, parts, axis=None)


data = load("train")
per_epoch = len(data[0]) // size
steps = arguments.steps or arguments.epochs * per_epoch
batches = tf.data.Dataset.from_tensor_slices(data)
batches = batches.shuffle(len(data[0]), arguments.seed).repeat().batch(size, drop_remainder=True)
sirtaki.describe(model="cnn", global_batch=size, lr=rate, seed=arguments.seed)
stream = iter(strategy.experimental_distribute_dataset(batches.take(steps)))
for step in range(1, steps + 1):
    loss = train(*next(stream))
    if step % 10 == 0:
        sirtaki.progress(step, steps, epoch=step / per_epoch, samples=step * size, loss=loss)
        if rank == 0:
            print(f"step {step} loss {float(loss):.6f}", flush=True)

images, labels = load("t10k")
find = tf.function(lambda images: tf.argmax(model(images), axis=1))
found = [find(images[begin : begin + 500]).numpy() for begin in range(0, len(images), 500)]
accuracy = float((tf.concat(found, 0).numpy() == labels).mean())
sirtaki.progress(steps, steps, test_accuracy=accuracy)
if rank == 0:
    print(f"test accuracy {accuracy:.4f}")
