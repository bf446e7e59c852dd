"""Digits with TensorFlow: sirtaki run -n 2 --horovod -- python tensorflow_mnist.py"""

import argparse
import math

import horovod.tensorflow as hvd
import numpy as np
import tensorflow as tf
from digits import load

import sirtaki

parser = argparse.ArgumentParser()
parser.add_argument("--batch-size", type=int, default=64, help="images per step of a worker")
parser.add_argument("--lr", type=float, default=0.005, help="learning rate of one worker")
parser.add_argument("--epochs", type=int, default=1)
parser.add_argument("--steps", type=int, default=0, help="end after so many steps")
parser.add_argument("--dropout", type=float, default=0.25)
parser.add_argument("--seed", type=int, default=42)
arguments = parser.parse_args()


hvd.init()
tf.keras.utils.set_random_seed(arguments.seed)

model = tf.keras.Sequential(
    [
        tf.keras.Input((28, 28, 1)),
        tf.keras.layers.Conv2D(32, 3, activation="relu"),
        tf.keras.layers.Conv2D(64, 3, activation="relu"),
        tf.keras.layers.MaxPooling2D(2),
        tf.keras.layers.Dropout(arguments.dropout),
        tf.keras.layers.Flatten(),
        tf.keras.layers.Dense(128, activation="relu"),
        tf.keras.layers.Dropout(2 * arguments.dropout),
        tf.keras.layers.Dense(10),
    ]
)
optimizer = tf.keras.optimizers.SGD(arguments.lr * hvd.size(), momentum=0.9)
loss_of = tf.keras.losses.SparseCategoricalCrossentropy(from_logits=True)


@tf.function
def train(images: tf.Tensor, labels: tf.Tensor) -> tf.Tensor:
    """One step, with the gradients of all workers."""
    with tf.GradientTape() as tape:
        loss = loss_of(labels, model(images, training=True))
    tape = hvd.DistributedGradientTape(tape)
    gradients = tape.gradient(loss, model.trainable_variables)
    optimizer.apply_gradients(zip(gradients, model.trainable_variables))
    return loss


images, labels = load("train")
hvd.broadcast_variables(model.variables, root_rank=0)
per_epoch = len(images) // hvd.size() // arguments.batch_size
sirtaki.describe(
    model="cnn",
    batch_per_worker=arguments.batch_size,
    lr=arguments.lr * hvd.size(),
    epochs=arguments.epochs,
    seed=arguments.seed,
)
step, steps = 0, arguments.steps or arguments.epochs * per_epoch
for epoch in range(math.ceil(steps / per_epoch)):
    order = np.random.default_rng(arguments.seed + epoch).permutation(len(images))
    order = order[hvd.rank() :: hvd.size()]
    for number in range(min(per_epoch, steps - step)):
        batch = order[number * arguments.batch_size :][: arguments.batch_size]
        loss = train(images[batch], labels[batch])
        step += 1
        if step % 10 == 0:
            mean = float(hvd.allreduce(loss, name="loss"))
            seen = step * arguments.batch_size * hvd.size()
            sirtaki.progress(step, steps, samples=seen, loss=mean)
            if hvd.rank() == 0:
                print(f"step {step} loss {mean:.6f}", flush=True)

images, labels = load("t10k")
images, labels = images[hvd.rank() :: hvd.size()], labels[hvd.rank() :: hvd.size()]
found = tf.function(lambda images: tf.argmax(model(images), axis=1))
right = sum(
    int((found(images[begin : begin + 500]).numpy() == labels[begin : begin + 500]).sum())
    for begin in range(0, len(images), 500)
)
accuracy = float(hvd.allreduce(tf.constant(right / len(images)), name="test"))
sirtaki.progress(step, steps, test_accuracy=accuracy)
if hvd.rank() == 0:
    print(f"test accuracy {accuracy:.4f}")
