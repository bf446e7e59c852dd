"""Whole models: one line, variables, elastic state, collectives."""

import keras
import numpy as np
import pytest
from learning import BATCH, STEPS, alone, data, network, own, same

import sirtaki
import sirtaki.keras as hvd


def fit(model, **options):
    x, y = data()
    size = BATCH // hvd.size()
    return model.fit(own(x), own(y), size, epochs=2, shuffle=False, verbose=0, **options)


@pytest.mark.core
@pytest.mark.parametrize("compiled_before", [False, True])
def test_one_line_is_enough(compiled_before, tmp_path):
    model = network()
    model.set_weights([weight + hvd.rank() for weight in model.get_weights()])
    for step in (0, 1):
        if step == compiled_before:
            model = sirtaki.data_parallel(model)
        else:
            model.compile(optimizer=keras.optimizers.SGD(0.1, momentum=0.9), loss="mse")
    seen = []
    look = keras.callbacks.LambdaCallback(
        on_epoch_end=lambda epoch, logs: seen.append(logs["loss"])
    )
    fit(model, callbacks=[look])
    same(model, alone(keras.optimizers.SGD(0.1, momentum=0.9)))
    assert all(losses == seen for losses in hvd.allgather_object(seen))
    path = tmp_path / "model.keras"
    model.save(path)
    assert type(keras.models.load_model(path)) is keras.Sequential


@pytest.mark.core
@pytest.mark.keras3
def test_variables_of_any_type(several):
    kinds = ["float32", "bfloat16", "int32", "bool", "float16"]
    variables = [
        keras.Variable(np.full(3, hvd.rank()), dtype=kind, trainable=False) for kind in kinds
    ]
    variables.append(keras.Variable(float(hvd.rank())))
    hvd.broadcast_variables(variables, root_rank=1)
    for variable in variables:
        value = keras.ops.convert_to_numpy(keras.ops.cast(variable, "float32"))
        np.testing.assert_array_equal(value, np.ones_like(value))


@pytest.mark.core
def test_collectives_take_what_keras_takes():
    total = hvd.allreduce([1.0, 2.0], op=hvd.Sum)
    np.testing.assert_allclose(np.asarray(total), np.array([1, 2]) * hvd.size())
    assert float(hvd.allreduce(np.float32(hvd.rank()))) == (hvd.size() - 1) / 2
    rows = np.asarray(hvd.allgather(np.full((1, 2), hvd.rank(), "float32")))
    assert rows[:, 0].tolist() == list(range(hvd.size()))
    assert float(hvd.broadcast(float(hvd.rank()), hvd.size() - 1)) == hvd.size() - 1
    part = hvd.reducescatter(np.ones(hvd.size(), "float32"), op=hvd.Sum)
    np.testing.assert_allclose(np.asarray(part), [hvd.size()])


def test_elastic_state():
    model = network()
    model.set_weights([weight * 0 + 1 + hvd.rank() for weight in model.get_weights()])
    optimizer = keras.optimizers.SGD(0.1 * (1 + hvd.rank()), momentum=0.9)
    optimizer.build(model.trainable_variables)
    state = hvd.elastic.KerasState(model, optimizer, batch=20 + hvd.rank(), epoch=10)
    state.sync()
    assert all((weight == 1).all() for weight in model.get_weights())
    assert state.batch == 20 and float(optimizer.learning_rate) == pytest.approx(0.1)
    model.set_weights([weight * 3 for weight in model.get_weights()])
    state.batch = 21
    state.restore()
    assert state.batch == 20 and (model.get_weights()[0] == 1).all()
    model.set_weights([weight * 3 for weight in model.get_weights()])
    state.batch = 22
    state.commit()
    model.set_weights([weight * 0 for weight in model.get_weights()])
    state.restore()
    assert state.batch == 22 and (model.get_weights()[0] == 3).all()


def test_training_keeps_elastic_state():
    model = network()
    model.compile(optimizer=hvd.DistributedOptimizer(keras.optimizers.SGD(0.1)), loss="mse")
    state = hvd.elastic.KerasState(model, batch=0, epoch=5)
    committed = []
    commit = state.commit
    state.commit = lambda: (commit(), committed.append(state.batch))
    callbacks = [
        hvd.elastic.UpdateBatchStateCallback(state),
        hvd.elastic.UpdateEpochStateCallback(state),
        hvd.elastic.CommitStateCallback(state, batches_per_commit=2),
    ]
    fit(model, callbacks=callbacks)
    assert state.epoch == 7 and state.batch == 0
    assert committed == 2 * [*range(2, STEPS + 1, 2), 0]
    weights = model.get_weights()
    model.set_weights([weight * 0 for weight in weights])
    state.restore()
    same(model, weights)
