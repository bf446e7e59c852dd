"""What jax_peer.py trains: losses with their weights and batches. Inputs are made up, and stay the same."""

import jax
import jax.numpy as jnp
import numpy
from jax import lax

RATE = 0.01


def entropy(scores, labels):
    return -jnp.take_along_axis(jax.nn.log_softmax(scores), labels[:, None], axis=1).mean()


def normal(shapes):
    generator = numpy.random.default_rng(0)
    return [generator.normal(scale=0.05, size=shape).astype(numpy.float32) for shape in shapes]


class Cnn:
    """The network of many tutorials for MNIST: 1.2 million parameters, much arithmetic for each of them."""

    samples, inputs = 64, (28, 28, 1)
    shapes = [(3, 3, 1, 32), (32,), (3, 3, 32, 64), (64,), (9216, 128), (128,), (128, 10), (10,)]

    @classmethod
    def weights(cls):
        return [jnp.asarray(array) for array in normal(cls.shapes)]

    @classmethod
    def batch(cls, rank):
        generator = numpy.random.default_rng(rank)
        images = generator.normal(size=(cls.samples, *cls.inputs)).astype(numpy.float32)
        return images, generator.integers(10, size=cls.samples).astype(numpy.int32)

    @staticmethod
    def loss(weights, images, labels):
        for kernel, bias in (weights[0:2], weights[2:4]):
            layout = ("NHWC", "HWIO", "NHWC")
            images = lax.conv_general_dilated(images, kernel, (1, 1), "VALID", dimension_numbers=layout)
            images = jax.nn.relu(images + bias)
        window = (1, 2, 2, 1)
        images = lax.reduce_window(images, -jnp.inf, lax.max, window, window, "VALID")
        hidden = jax.nn.relu(images.reshape(len(images), -1) @ weights[4] + weights[5])
        return entropy(hidden @ weights[6] + weights[7], labels)


class Mlp(Cnn):
    """17 million parameters and little arithmetic for each of them."""

    samples, inputs = 32, (2048,)
    shapes = [shape for _ in range(4) for shape in ((2048, 2048), (2048,))] + [(2048, 10), (10,)]

    @staticmethod
    def loss(weights, rows, labels):
        for layer in range(4):
            rows = jax.nn.relu(rows @ weights[2 * layer] + weights[2 * layer + 1])
        return entropy(rows @ weights[8] + weights[9], labels)


WORKS = {"cnn": Cnn, "mlp": Mlp}
