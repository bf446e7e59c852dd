"""Objects are unpickled only if a rank of this job has just sent them under this name."""

import pickle

import pytest
import torch
import torch.distributed as dist

import sirtaki.torch as hvd
from sirtaki import _objects
from sirtaki._objects import Parcel

unpickled = []


def remember():
    unpickled.append("run")


class Trap:
    """Remembers that somebody unpickled it."""

    def __reduce__(self):
        return remember, ()


def test_an_object_that_was_changed_on_its_way_is_not_unpickled(several, monkeypatch):
    def change(engine, content, about, seal=_objects.seal):
        sealed = seal(engine, content, about)
        sealed[0 : len(content)] = pickle.dumps(Trap()).ljust(len(content), b".")[: len(content)]
        return sealed

    unpickled.clear()
    if hvd.rank() == 0:
        monkeypatch.setattr(_objects, "seal", change)
        hvd.broadcast_object("x" * 1000, 0, "changed")
    else:
        with pytest.raises(hvd.Error, match=r"object.changed` of rank 0 was changed on its way"):
            hvd.broadcast_object(None, 0, "changed")
    assert unpickled == []
    monkeypatch.undo()
    assert hvd.broadcast_object(hvd.rank(), 0, "changed") == 0


@pytest.mark.parametrize("other", ["earlier", "another name", "another sender", "another set"])
def test_what_was_recorded_cannot_be_sent_again(other):
    sealed = bytes(Parcel("again", 0).pack("mine", 0))
    later = {
        "earlier": Parcel("again", 0),
        "another name": Parcel("other", 0),
        "another sender": Parcel("again", 0),
        "another set": Parcel("again", 1),
    }[other]
    with pytest.raises(hvd.Error, match="it is not unpickled"):
        later.unpack(sealed, 1 if other == "another sender" else 0)


def test_sender_and_receiver_agree_however_often():
    for number in range(3):
        assert hvd.broadcast_object(number, 0, "often") == number
    assert hvd.allgather_object(hvd.rank()) == list(range(hvd.size()))


@pytest.mark.usefixtures("process_group")
def test_pytorchs_own_objects_are_checked_before_they_are_unpickled():
    got = [None] * dist.get_world_size()
    dist.all_gather_object(got, "x" * 100 * dist.get_rank())
    assert got == ["x" * 100 * rank for rank in range(dist.get_world_size())]
    functions = dist.distributed_c10d
    # Older versions do not ask for a group.
    newer = tuple(int(part) for part in torch.__version__.split(".")[:2]) >= (2, 3)
    group = (dist.group.WORLD,) if newer else ()
    tensor, length = functions._object_to_tensor(Trap(), "cpu", *group)
    unpickled.clear()
    tensor[-1] ^= 1
    with pytest.raises(hvd.Error, match=r"an object of torch.distributed was changed"):
        functions._tensor_to_object(tensor, length, *group)
    assert unpickled == []
    tensor[-1] ^= 1
    functions._tensor_to_object(tensor, length, *group)
    assert unpickled == ["run"]
