"""A small training, by one process and by all ranks together."""

import keras
import numpy as np

import sirtaki.keras as hvd

BACK_END = keras.backend.backend()
BATCH, STEPS = 32, 4


def data(samples=BATCH * STEPS):
    random = np.random.default_rng(5)
    x = random.normal(size=(samples, 6)).astype("float32")
    return x, np.tanh(x @ random.normal(size=(6, 2))).astype("float32")


def own(x):
    """What this rank sees: every batch of a single process is divided among the ranks."""
    return x[hvd.rank() :: hvd.size()]


def network():
    keras.utils.set_random_seed(3)
    layers = [keras.layers.Dense(5, activation="tanh"), keras.layers.Dense(2)]
    return keras.Sequential([keras.Input((6,)), *layers])


def alone(optimizer, epochs=2, **options):
    """The weights after training by one process."""
    model, (x, y) = network(), data()
    model.compile(optimizer=optimizer, loss="mse", **options)
    model.fit(x, y, batch_size=BATCH, epochs=epochs, shuffle=False, verbose=0)
    return model.get_weights()


def together(optimizer, epochs=2, callbacks=(), **options):
    """The model after the same training on all ranks."""
    model, (x, y) = network(), data()
    # With Keras 2, variables are sent after the first batch only.
    if hvd.rank() and not keras.__version__.startswith("2."):
        model.set_weights([weight + hvd.rank() for weight in model.get_weights()])
    model.compile(optimizer=optimizer, loss="mse", **options)
    start = hvd.callbacks.BroadcastGlobalVariablesCallback(0)
    size = BATCH // hvd.size()
    model.fit(
        own(x),
        own(y),
        batch_size=size,
        epochs=epochs,
        shuffle=False,
        verbose=0,
        callbacks=[start, *callbacks],
    )
    return model


def same(model, weights, tolerance=2e-6):
    for own_weight, weight in zip(model.get_weights(), weights):
        np.testing.assert_allclose(own_weight, weight, atol=tolerance)
