"""Data by rank: every sample once over all ranks, in the order of the Rust package."""

import json
from pathlib import Path

import numpy as np
import pytest
import torch

import sirtaki
import sirtaki.numpy as hvd
from sirtaki._parallel import front_end
from sirtaki.data import Draws, Partition, Position, batches, shard, take

PLANS = json.loads((Path(__file__).parents[1] / "plans.json").read_text())
"""Compared with the Rust package's plans by its own tests."""


@pytest.mark.parametrize("plan", PLANS["partitions"])
def test_partitions_are_those_of_rust(plan):
    seed, epoch, seen = plan["position"]
    made = [
        Partition(
            plan["samples"], plan["batch"], seed=seed, epoch=epoch, seen=seen, rank=r, size=size
        )
        for size in [len(plan["workers"])]
        for r in range(size)
    ]
    assert [[batch.tolist() for batch in one] for one in made] == plan["workers"]
    assert [list(one.position(1)) for one in made] == [plan["next"]] * len(made)
    last = len(made[0]) - 1
    assert [one.weight(last) for one in made] == pytest.approx(plan["weights"])


@pytest.mark.parametrize("plan", PLANS["draws"])
def test_draws_are_those_of_rust(plan):
    seed, first, rank = plan["key"]
    made = Draws(
        plan["samples"], len(plan["batches"][0]), len(plan["batches"]),
        seed=seed, first=first, rank=rank,
    )  # fmt: skip
    assert [batch.tolist() for batch in made] == plan["batches"]


@pytest.mark.parametrize("samples", [0, 1, 7, 100])
@pytest.mark.parametrize("shuffle", [True, False])
def test_every_sample_once_over_all_ranks(samples, shuffle):
    plan = Partition(samples, 3, seed=5, shuffle=shuffle)
    seen = []
    for epoch in range(2):
        plan.set_epoch(epoch)
        own = np.concatenate([np.empty(0, np.int64), *plan])
        everybody = hvd.allgather(own)
        assert sorted(everybody) == list(range(samples))
        assert hvd.allreduce(len(plan), op=hvd.Max) == len(plan), "as many batches as others"
        seen.append(own.tolist())
    if samples == 100:
        assert (seen[0] == seen[1]) != shuffle


def test_the_last_step():
    size, samples = hvd.size(), 6 * hvd.size() + 1
    keep, drop, pad = (Partition(samples, 4, last=last) for last in ("keep", "drop", "pad"))
    assert (len(keep), len(drop), len(pad)) == (2, 1, 2)
    assert [len(batch) for batch in drop] == [4] and [len(batch) for batch in pad] == [4, 4]
    assert len(keep[1]) == (3 if hvd.rank() == 0 else 2)
    everybody = hvd.allgather(np.concatenate(list(pad)))
    assert sorted(set(everybody)) == list(range(samples)) and len(everybody) == 8 * size
    weighted = hvd.allreduce(float(keep[1].sum() / len(keep[1]) * keep.weight(1)))
    rest = hvd.allgather(keep[1])
    assert float(weighted) == pytest.approx(rest.mean())
    assert pad.weight(1) == 1 and pad.together(1) == 4 * size


def test_continuing_in_the_middle_on_other_ranks():
    for last in ("keep", "pad"):
        whole = Partition(50, 4, seed=3, last=last)
        begun = [whole[batch] for batch in range(1)]
        position = whole.position(1)
        assert position == Position(3, 0, 4 * hvd.size())
        rest = [Partition(50, 5, seed=3, last="keep", rank=r, size=3) for r in range(3)]
        for plan in rest:
            plan.seek(position)
        others = [sample for plan in rest for batch in plan for sample in batch.tolist()]
        first = hvd.allgather(np.concatenate(begun)).tolist()
        assert sorted(first + others) == list(range(50))
        assert whole.position(len(whole)) == Position(3, 1, 0)


def test_pytorchs_loader_has_the_same_samples():
    data = torch.arange(30) * 10
    plan = Partition(data, 4, seed=9, epoch=2)
    loader = torch.utils.data.DataLoader(torch.utils.data.TensorDataset(data), batch_sampler=plan)
    assert [part.tolist() for [part] in loader] == [(one * 10).tolist() for one in plan]
    assert len(loader) == len(plan)


def test_arrays():
    inputs, labels = np.arange(60).reshape(30, 2), np.arange(30)
    plan = Partition(labels, 4, seed=1)
    for (x, y), indices in zip(batches((inputs, labels), plan), plan):
        assert y.tolist() == indices.tolist() and x[:, 0].tolist() == (2 * y).tolist()
    assert take([inputs, {"y": labels}], [4])[1]["y"].tolist() == [4]
    parts = hvd.allgather(shard(labels, "keep"))
    assert sorted(parts) == list(range(30))
    for last in ("drop", "pad"):
        here = shard({"x": inputs}, last)["x"]
        assert hvd.allreduce(len(here), op=hvd.Min) == len(here)


def test_mistakes():
    for wrong, text in [
        ({"samples": -1}, "cannot be numbered"),
        ({"samples": 2**33}, "split the data set"),
        ({"batch_size": 0}, "cannot be made"),
        ({"last": "lose"}, "keep, drop, pad"),
        ({"seen": 11}, "seen already"),
        ({"rank": 2, "size": 2}, "no rank 2 of 2"),
        ({"rank": 0}, "both or none"),
    ]:
        with pytest.raises(ValueError, match=text):
            Partition(**{"samples": 10, "batch_size": 1, **wrong})
    with pytest.raises(ValueError, match="none can be drawn"):
        Draws(0, 1, 1)
    with pytest.raises(IndexError):
        Partition(10, 1, rank=0, size=1)[10]
    with pytest.raises(ValueError, match="does not fit 3 rows"):
        batches(np.ones(3), Partition(4, 1))
    with pytest.raises(ValueError, match="do not belong together"):
        shard((np.ones(3), np.ones(4)))
    with pytest.raises(ValueError, match=r"(?s)a str does not have.*asarray"):
        shard("abc")


def test_data_parallel_says_what_it_takes():
    for value in (3, "model", torch.nn.Linear, lambda weights: weights):
        with pytest.raises(TypeError, match=r"(?s)cannot train an object of type .*hint:.*Keras"):
            sirtaki.data_parallel(value)


def test_the_page_about_it_is_true():
    page = (Path(__file__).parents[3] / "docs" / "python.md").read_text()
    programs = [block.partition("```")[0] for block in page.split("```python\n")[1:]]
    assert len(programs) == 3
    names = {}
    for program in programs:
        exec(program, names)
    assert names["rows"].shape == (sum(range(hvd.size() + 1)), 2)
    assert names["gradient"].tolist() == [sum(range(hvd.size()))] * 3


@pytest.mark.parametrize(
    ("module", "base", "place"),
    [
        ("train", torch.nn.Module, "sirtaki.torch"),
        ("keras.src.models", object, "sirtaki.keras"),
        ("keras.src.models", torch.nn.Module, "sirtaki.keras"),
        ("tf_keras.models", object, "sirtaki.keras"),
        ("optax._src.base", tuple, "sirtaki.jax"),
        ("flax.linen.module", object, "sirtaki.jax"),
    ],
)
def test_data_parallel_finds_the_front_end_of_a_model(module, base, place):
    of_framework = type("Model", (base,), {"__module__": module})
    of_user = type("Mine", (of_framework,), {"__module__": "train"})
    assert front_end(of_framework()) == front_end(of_user()) == place
