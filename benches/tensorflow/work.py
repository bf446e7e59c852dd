"""What peer.py trains, for Keras 3 and for Keras 2. Inputs are made up."""

import numpy as np

CLASSES = 10


class Cnn:
    """The network of many tutorials for MNIST: 1.2 million parameters, much arithmetic for each of them."""

    batch, shape = 64, (28, 28, 1)

    def layers(self, layers):
        return [
            layers.Conv2D(32, 3, activation="relu"),
            layers.Conv2D(64, 3, activation="relu"),
            layers.MaxPooling2D(),
            layers.Dropout(0.25),
            layers.Flatten(),
            layers.Dense(128, activation="relu"),
            layers.Dropout(0.5),
            layers.Dense(CLASSES),
        ]

    def model(self, keras):
        return keras.Sequential([keras.Input(self.shape), *self.layers(keras.layers)])

    def data(self, steps):
        random = np.random.default_rng(1)
        inputs = random.normal(size=(self.batch * steps, *self.shape)).astype("float32")
        return inputs, random.integers(CLASSES, size=len(inputs))


class Mlp(Cnn):
    """17 million parameters and little arithmetic for each of them."""

    batch, shape = 32, (2048,)

    def layers(self, layers):
        return [*[layers.Dense(2048, activation="relu") for _ in range(4)], layers.Dense(CLASSES)]


WORKS = {"cnn": Cnn, "mlp": Mlp}
