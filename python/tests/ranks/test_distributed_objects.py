"""Objects are unpickled only if a rank of this job has just sent them under this name."""

import pickle

import pytest
import torch
import torch.distributed as dist

import sirtaki.torch as hvd
from sirtaki._core import objects as sealed_objects
from sirtaki._core.objects import Parcel

unpickled = []


def remember():
    unpickled.append("run")


class Trap:
    """Remembers that somebody unpickled it."""

    def __reduce__(self):
        return remember, ()


def test_an_object_that_was_changed_on_its_way_is_not_unpickled(several, monkeypatch):
    def change(engine, content, about, seal=sealed_objects.seal):
        sealed = seal(engine, content, about)
        sealed[0 : len(content)] = pickle.dumps(Trap()).ljust(len(content), b".")[: len(content)]
        return sealed

    unpickled.clear()
    if hvd.rank() == 0:
        monkeypatch.setattr(sealed_objects, "seal", change)
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


def all_gather(objects):
    got = [None] * dist.get_world_size()
    dist.all_gather_object(got, objects[0])
    return got[:1]


def gather(objects):
    got = [None] * dist.get_world_size()
    last = dist.get_world_size() - 1
    dist.gather_object(objects[0], got if dist.get_rank() == last else None, last)
    return got[:1] if dist.get_rank() == last else objects[:1]


def broadcast(objects):
    got = list(objects) if dist.get_rank() == 0 else [None] * len(objects)
    dist.broadcast_object_list(got, 0)
    return got


def scatter(objects):
    got = [None]
    given = [objects[0]] * dist.get_world_size() if dist.get_rank() == 0 else None
    dist.scatter_object_list(got, given, 0)
    return got


def message(objects):
    if dist.get_rank() == 0:
        dist.send_object_list(objects, 1)
    if dist.get_rank() != 1:
        return objects
    got = [None] * len(objects)
    dist.recv_object_list(got, 0)
    return got


def notices(exchange):
    """Whether this rank unpickles what rank 0 has packed."""
    last = dist.get_world_size() - 1
    receives = {gather: dist.get_rank() == last, message: dist.get_rank() == 1}
    return receives.get(exchange, dist.get_rank() > 0 or exchange in (all_gather, scatter))


@pytest.mark.parametrize("exchange", [all_gather, gather, broadcast, scatter, message])
@pytest.mark.usefixtures("process_group")
def test_what_was_recorded_of_pytorchs_objects_cannot_be_sent_again(
    several, exchange, monkeypatch
):
    functions, recorded = dist.distributed_c10d, []
    if not hasattr(dist, "send_object_list") and exchange is message:
        pytest.skip("this PyTorch does not have it")

    def record(*args, pack=functions._object_to_tensor, **named):
        recorded.append(pack(*args, **named))
        return [part.clone() for part in recorded[-1]]

    def replay(*args, **named):
        return recorded.pop(0)

    unpickled.clear()
    with monkeypatch.context() as patch:
        patch.setattr(functions, "_object_to_tensor", record)
        exchange([Trap(), Trap()])
    assert bool(unpickled) == notices(exchange)
    unpickled.clear()
    if dist.get_rank() == 0:
        monkeypatch.setattr(functions, "_object_to_tensor", replay)
    if notices(exchange):
        with pytest.raises(hvd.Error, match=r"an object of torch.distributed was changed"):
            exchange([Trap(), Trap()])
    else:
        exchange([Trap(), Trap()])
    assert unpickled == []
    monkeypatch.undo()
    assert exchange(["fresh", "as well"])[0] == "fresh"


@pytest.mark.usefixtures("process_group")
def test_objects_of_one_call_keep_their_places(several, monkeypatch):
    if dist.get_rank() > 0:
        with pytest.raises(hvd.Error, match=r"an object of torch.distributed was changed"):
            broadcast(["first", "other"])
        return
    put_together = torch.cat
    # Both have the same length.
    monkeypatch.setattr(torch, "cat", lambda tensors: put_together(tuple(reversed(tensors))))
    broadcast(["first", "other"])
