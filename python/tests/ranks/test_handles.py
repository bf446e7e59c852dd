"""Tensors in flight: many of them, waited for by several threads, and memory that changes."""

import threading

import pytest
import torch

import sirtaki
import sirtaki.torch as hvd
from sirtaki._core import job, names

LIMIT = 300
"""Seconds, as the last resort."""


def wait_in_thread(handle):
    """A thread that waits, and what it got."""
    got = []

    def wait():
        try:
            got.append(hvd.synchronize(handle))
        except sirtaki.Error as error:
            got.append(error)

    thread = threading.Thread(target=wait)
    thread.start()
    return thread, got


def test_poll_while_another_thread_waits(several):
    name = "polled"
    if hvd.rank() == 0:
        handle = hvd.allreduce_async(torch.ones(2), name=name)
        thread, got = wait_in_thread(handle)
        # Nothing is done before the others come, however often one asks.
        for _ in range(200):
            assert not hvd.poll(handle) and not got
            threading.Event().wait(0.001)
        hvd.barrier()
        thread.join(LIMIT)
        assert hvd.poll(handle) and got[0].tolist() == [1.0, 1.0]
    else:
        hvd.barrier()
        hvd.allreduce(torch.ones(2), name=name)


def test_several_threads_wait_for_one_tensor(several):
    name, columns = "awaited", torch.zeros(3, 2)
    # A view that is not contiguous, so that there is something to copy back.
    column = columns[:, 0]
    if hvd.rank() == 0:
        handle = hvd.allreduce_async_(column.fill_(1.0), name=name, op=hvd.Sum)
        threads = [wait_in_thread(handle) for _ in range(4)]
        for _ in range(200):
            assert not any(got for _, got in threads)
            threading.Event().wait(0.001)
        hvd.barrier()
        for thread, got in threads:
            thread.join(LIMIT)
            assert got[0] is column
        assert columns[:, 0].eq(hvd.size()).all() and columns[:, 1].eq(0).all()
        assert hvd.synchronize(handle) is None
    else:
        hvd.barrier()
        hvd.allreduce_(column.fill_(1.0), name=name, op=hvd.Sum)
        assert columns[:, 0].eq(hvd.size()).all()


def test_several_threads_get_the_same_error(several):
    tensor = torch.ones(2 + hvd.rank())
    handle = hvd.allreduce_async(tensor, name="not the same")
    threads = [wait_in_thread(handle) for _ in range(3)]
    for thread, got in threads:
        thread.join(LIMIT)
        assert got[0] is None or "different shapes" in str(got[0])
    assert any(isinstance(got[0], sirtaki.Error) for _, got in threads)
    hvd.barrier()


def test_more_tensors_without_names_than_there_are_names():
    count = names.NAMES + 500
    if hvd.rank() > 0:
        # Nothing is done before rank 0 has handed in all of them.
        hvd.barrier()
    handles = [hvd.allreduce_async(torch.full((1,), float(number))) for number in range(count)]
    if hvd.rank() == 0:
        hvd.barrier()
    for number, handle in enumerate(handles):
        assert hvd.synchronize(handle).item() == number
    hvd.barrier()


def test_names_that_are_not_in_use_are_forgotten():
    for number in range(1000):
        hvd.allreduce(torch.ones(1), name=f"loss.{number}")
    assert len(job.world.in_flight) < 200


@pytest.mark.parametrize("how", ["grow", "free"])
@pytest.mark.parametrize("collective", ["allreduce", "allgather"])
def test_memory_that_is_resized_in_flight(collective, how):
    tensor = torch.ones(8)
    name = f"resized {how}"
    if collective == "allreduce":
        handle = hvd.allreduce_async_(tensor, name=name)
    else:
        handle = hvd.allgather_async(tensor, name=name)
    # Only now, so that the test itself does no harm: nobody works in this memory any more.
    while not hvd.poll(handle):
        threading.Event().wait(0.001)
    if how == "grow":
        tensor.resize_(100_000)
    else:
        tensor.storage().resize_(0)
    with pytest.raises(sirtaki.Error, match=r"(?s)\[8\] was resized or freed.*in flight.*hint:"):
        hvd.synchronize(handle)
    hvd.barrier()


def test_devices_that_cannot_take_part_are_refused_before_anybody_waits():
    for tensors in ([torch.ones(2), torch.ones(2, device="meta")], [torch.ones(2, device="meta")]):
        with pytest.raises(ValueError, match=r"(?s)on meta cannot travel.*hint:"):
            hvd.grouped_allreduce(tensors)
        with pytest.raises(ValueError, match="on meta cannot travel"):
            hvd.grouped_allgather(tensors)
    hvd.barrier()
