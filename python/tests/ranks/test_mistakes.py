"""Mistakes are exceptions that name rank and tensor, on all ranks, and do no harm."""

import gc
import os
import signal
import threading
import time

import pytest
import torch

import sirtaki
import sirtaki.torch as hvd


def test_shapes_and_types_that_differ(several):
    cases = [
        (torch.ones(3 + hvd.rank()), torch.ones(3)),
        (torch.ones([2] * (1 + hvd.rank())), torch.ones(2)),
        (torch.ones(3, dtype=[torch.float32, torch.float64][hvd.rank() % 2]), torch.ones(3)),
    ]
    for number, (different, same) in enumerate(cases):
        with pytest.raises(sirtaki.Error, match=rf"(?s)allreduce\.case {number}.*ranks? 1"):
            hvd.allreduce(different, name=f"case {number}")
        assert hvd.allreduce(same, op=hvd.Sum).sum() == same.sum() * hvd.size()


def test_operations_that_differ(several):
    with pytest.raises(hvd.HorovodInternalError):
        hvd.allreduce(torch.ones(2), name="ops", op=[hvd.Sum, hvd.Max][hvd.rank() % 2])
    with pytest.raises(hvd.HorovodInternalError):
        hvd.broadcast(torch.ones(2), root_rank=hvd.rank() % 2, name="roots")
    with pytest.raises(hvd.HorovodInternalError):
        hvd.allgather(torch.ones(2, 2 + hvd.rank()), name="rows")
    hvd.barrier()


def test_mistakes_of_one_rank():
    with pytest.raises(hvd.HorovodInternalError, match="root"):
        hvd.broadcast(torch.ones(2), root_rank=hvd.size())
    with pytest.raises(ValueError, match="rows"):
        hvd.alltoall(torch.ones(hvd.size()), [2] * hvd.size())
    with pytest.raises(ValueError, match="rows"):
        hvd.alltoall(torch.ones(hvd.size() + 1), [hvd.size() + 2] + [0] * (hvd.size() - 1))
    with pytest.raises(ValueError, match="negative"):
        hvd.alltoall(torch.ones(hvd.size()), [-1] * hvd.size())
    with pytest.raises(ValueError, match="splits"):
        hvd.alltoall(torch.ones(hvd.size()), [1] * (hvd.size() + 1))
    with pytest.raises(ValueError, match="integers"):
        hvd.alltoall(torch.ones(hvd.size()), torch.ones(hvd.size()))
    with pytest.raises(ValueError, match="not supported"):
        hvd.allreduce(torch.ones(2, dtype=torch.int16))
    with pytest.raises(ValueError, match="layout"):
        hvd.allreduce(torch.eye(2).to_sparse())
    with pytest.raises(ValueError, match="meta"):
        hvd.allgather(torch.ones(2, device="meta"))
    with pytest.raises(ValueError, match="tensor is needed"):
        hvd.allgather([1, 2])
    with pytest.raises(ValueError, match="no reduction"):
        hvd.allreduce(torch.ones(2), op=17)
    with pytest.raises(NotImplementedError):
        hvd.reducescatter(torch.ones(2), op=hvd.Max)
    hvd.barrier()


COLLECTIVES = {
    "allreduce": hvd.allreduce,
    "allreduce_": hvd.allreduce_,
    "allreduce_async": hvd.allreduce_async,
    "grouped_allreduce": lambda tensor: hvd.grouped_allreduce([torch.ones(1), tensor]),
    "allgather": hvd.allgather,
    "grouped_allgather_async": lambda tensor: hvd.grouped_allgather_async([tensor]),
    "broadcast": lambda tensor: hvd.broadcast(tensor, 0),
    "broadcast_async_": lambda tensor: hvd.broadcast_async_(tensor, 0),
    "alltoall": hvd.alltoall,
    "reducescatter": hvd.reducescatter,
    "broadcast_parameters": lambda tensor: hvd.broadcast_parameters({"weight": tensor}, 0),
}


@pytest.mark.parametrize("name", COLLECTIVES)
def test_tensors_that_cannot_travel(name):
    size = hvd.size()
    for tensor, problem in (
        (torch.eye(size).to_sparse(), "layout torch.sparse_coo"),
        (torch.eye(size).to_sparse_csr(), "layout torch.sparse_csr"),
        (torch.ones(size, device="meta"), "on meta"),
    ):
        with pytest.raises(ValueError, match=rf"(?s){problem}.*hint:"):
            COLLECTIVES[name](tensor)
    # Nobody was asked, so nobody waits.
    assert hvd.allreduce(torch.ones(1)).item() == 1.0


def test_one_name_twice(several):
    # As long as the others have not come, the first one is on its way.
    if hvd.rank() == 0:
        first = hvd.allreduce_async(torch.ones(2), name="twice")
        with pytest.raises(ValueError, match=r"(?s)twice.*same name.*hint:"):
            hvd.allreduce_async(torch.ones(2), name="twice")
        with pytest.raises(ValueError, match="same name"):
            hvd.allreduce(torch.ones(2), name="twice")
        other = hvd.broadcast_async(torch.ones(2), 0, name="twice")
    hvd.barrier()
    if hvd.rank() > 0:
        first = hvd.allreduce_async(torch.ones(2), name="twice")
        other = hvd.broadcast_async(torch.ones(2), 0, name="twice")
    assert hvd.synchronize(first).tolist() == [1.0, 1.0]
    hvd.synchronize(other)
    # The name is free again.
    assert hvd.allreduce(torch.ones(1), name="twice").item() == 1.0


def test_what_needs_all_ranks_fails_after_a_join(several):
    if hvd.rank() > 0:
        for call in (
            lambda: hvd.allgather(torch.ones(2), name="gather"),
            lambda: hvd.broadcast(torch.ones(2), 1, name="spread"),
            lambda: hvd.reducescatter(torch.ones(hvd.size()), name="scatter"),
            lambda: hvd.alltoall(torch.ones(hvd.size()), name="exchange"),
        ):
            with pytest.raises(hvd.HorovodInternalError, match="rank 0 has joined"):
                call()
    assert hvd.join() > 0


def test_tensors_that_nobody_holds():
    handles = [
        hvd.allreduce_async(torch.full((50_000,), float(i)), name=f"f{i}") for i in range(20)
    ]
    gc.collect()
    rubbish = [torch.full((50_000,), -1.0) for _ in range(20)]
    for number, handle in enumerate(handles):
        assert hvd.synchronize(handle).eq(number).all()
    del rubbish
    # A handle that is given up does no harm either.
    hvd.allreduce_async(torch.ones(3), name="forgotten")
    gc.collect()
    hvd.barrier()


def test_the_interpreter_is_free_while_waiting(several):
    if hvd.rank() == 0:
        handle = hvd.allreduce_async(torch.ones(1), name="late")
        done = []
        waiter = threading.Thread(target=lambda: done.append(hvd.synchronize(handle)))
        waiter.start()
        # This thread gets on while the other one waits.
        assert sum(range(100_000)) and not done
        hvd.broadcast_object("go on", 0, name="free")
        waiter.join()
        assert done
    else:
        hvd.broadcast_object(None, 0, name="free")
        hvd.allreduce(torch.ones(1), name="late")


def test_other_threads_go_on_while_this_one_waits(several):
    if hvd.rank() == 0:
        counted, begun = [], threading.Event()

        def count():
            # A thread that has submitted something is one that others may have to wait for.
            hvd.allreduce(torch.ones(1), name="before counting")
            begun.set()
            # Only when this thread has got on do the others do their part.
            for number in range(1000):
                counted.append(number)
                time.sleep(0)
            hvd.broadcast_object("counted", 0, name="count")

        thread = threading.Thread(target=count)
        thread.start()
        begun.wait()
        hvd.allreduce(torch.ones(1), name="after counting")
        assert len(counted) == 1000
        thread.join()
    else:
        hvd.allreduce(torch.ones(1), name="before counting")
        hvd.broadcast_object(None, 0, name="count")
        hvd.allreduce(torch.ones(1), name="after counting")


def test_what_is_in_flight_at_the_end_fails(several):
    hvd.barrier()
    handle = None
    if hvd.rank() == 0:
        handle = hvd.allreduce_async(torch.ones(1000), name="never")
        lost = torch.ones(1000)
        hvd.allreduce_async_(lost, name="never either")
        del lost
    hvd.shutdown()
    gc.collect()
    if handle is not None:
        with pytest.raises(hvd.HorovodInternalError):
            hvd.synchronize(handle)
    with pytest.raises(ValueError, match="init"):
        hvd.allreduce(torch.ones(1))
    hvd.init()
    assert hvd.allreduce(torch.ones(1), name="never").item() == 1.0


def test_an_interrupt_ends_a_wait(several):
    handle = hvd.allreduce_async(torch.ones(1), name="interrupted")
    if hvd.rank() == 0:
        main = threading.main_thread().ident
        other = hvd.allreduce_async(torch.ones(1), name="after the interrupt")
        threading.Timer(0.3, signal.pthread_kill, (main, signal.SIGINT)).start()
        begin = time.monotonic()
        with pytest.raises(KeyboardInterrupt):
            hvd.synchronize(other)
        assert time.monotonic() - begin < 30
    interrupted = hvd.allreduce_async(torch.ones(1), name="was interrupted")
    # Ranks that wait for each other are told so; a rank that looks now and then is merely late.
    while not hvd.poll(interrupted):
        time.sleep(0.01)
    hvd.synchronize(interrupted)
    hvd.synchronize(handle)
    if hvd.rank() == 0:
        hvd.synchronize(other)
    else:
        hvd.allreduce(torch.ones(1), name="after the interrupt")


def test_a_forked_process_is_not_a_rank():
    handle = hvd.allreduce_async(torch.ones(1), name="before the fork")
    child = os.fork()
    if child == 0:
        code = 1
        try:
            for call in (hvd.rank, lambda: hvd.allreduce(torch.ones(1)), hvd.init, hvd.barrier):
                with pytest.raises(sirtaki.Error, match="forked"):
                    call()
            with pytest.raises(sirtaki.Error, match="forked"):
                hvd.synchronize(handle)
            assert not hvd.is_initialized()
            hvd.shutdown()
            code = 0
        finally:
            os._exit(code)
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
    hvd.synchronize(handle)


def test_workers_of_data_loaders():
    data = torch.utils.data.TensorDataset(torch.arange(8.0))
    loader = torch.utils.data.DataLoader(data, batch_size=2, num_workers=2)
    for (batch,) in loader:
        assert hvd.allreduce(batch).eq(batch).all()
