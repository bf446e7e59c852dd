"""Tensors of the host and of the GPU in one program: each in its lane, and never mixed up."""

import pytest
import torch
from gpu import DEVICE, example, examples

import sirtaki
import sirtaki.torch as hvd


def test_tensors_of_cpu_and_gpu_in_one_group():
    total = sum(range(1, hvd.size() + 1))
    for devices in ([DEVICE, "cpu", DEVICE], ["cpu", DEVICE]):
        tensors = [torch.full((5,), hvd.rank() + 1.0, device=device) for device in devices]
        for results in (
            hvd.grouped_allreduce(tensors, op=hvd.Sum),
            hvd.grouped_allreduce_(tensors, op=hvd.Sum),
        ):
            for tensor, result in zip(tensors, results):
                assert result.device == tensor.device and result.eq(total).all()
        tensors = [torch.full((5,), hvd.rank() + 1.0, device=device) for device in devices]
        for tensor, result in zip(tensors, hvd.grouped_allgather(tensors)):
            assert result.device == tensor.device and len(result) == 5 * hvd.size()
        shares = [torch.ones(hvd.size(), 2, device=device) for device in devices]
        for tensor, result in zip(shares, hvd.grouped_reducescatter(shares, op=hvd.Sum)):
            assert result.device == tensor.device and result.eq(hvd.size()).all()


def test_both_places_in_turn():
    for number in range(50):
        handles = [
            hvd.allreduce_async(example(hvd.rank()).to(device), name=f"{device} {number}")
            for device in (DEVICE, "cpu")
        ]
        for device, handle in zip((DEVICE, torch.device("cpu")), handles):
            got = hvd.synchronize(handle)
            assert got.device == device
            torch.testing.assert_close(got, examples().mean(0).to(device))


@pytest.mark.parametrize(
    "collective", ["allreduce", "allgather", "broadcast", "reducescatter", "alltoall"]
)
def test_one_tensor_in_different_places(several, collective):
    mine = torch.ones(hvd.size(), device="cpu" if hvd.rank() % 2 else DEVICE)
    arguments = {"broadcast": (0,)}.get(collective, ())
    with pytest.raises(sirtaki.Error) as caught:
        getattr(hvd, collective)(mine, *arguments, name="place")
    text = str(caught.value)
    assert f"{collective}.place" in text and "rank 1" in text.replace("ranks 1", "rank 1"), text
    assert "cuda" in text.lower() or "gpu" in text.lower(), text
    assert "cpu" in text.lower() or "host" in text.lower(), text
    # It did no harm.
    assert hvd.allreduce(torch.ones(1, device=DEVICE), op=hvd.Sum).item() == hvd.size()


def test_a_group_whose_tensors_are_elsewhere_on_one_rank(several):
    places = ["cpu", DEVICE] if hvd.rank() % 2 else [DEVICE, "cpu"]
    with pytest.raises(sirtaki.Error, match="crossed"):
        hvd.grouped_allreduce([torch.ones(3, device=place) for place in places], name="crossed")
    assert hvd.allreduce(torch.ones(1, device=DEVICE), op=hvd.Sum).item() == hvd.size()


def test_a_shape_that_differs(several):
    with pytest.raises(sirtaki.Error, match=r"(?s)allreduce\.shape.*ranks? 1"):
        hvd.allreduce(torch.ones(3 + hvd.rank(), device=DEVICE), name="shape")
    assert hvd.allreduce(torch.ones(1, device=DEVICE), op=hvd.Sum).item() == hvd.size()
