"""The names and signatures of Horovod 0.28.1 for PyTorch, all of them present, and apex's.

A table by hand: what a script may call, with its arguments and their defaults.
"""

import inspect
import subprocess
import sys
import textwrap
from pathlib import Path

import pytest

import sirtaki
import sirtaki.torch as hvd

REDUCE = (
    "average=None, name=None, op=None, prescale_factor=1.0, postscale_factor=1.0, process_set=ALL"
)
COMPRESSED = REDUCE.replace("op=None", "compression=NONE, op=None")
SCATTER = "name=None, op=0, process_set=ALL, prescale_factor=1.0, postscale_factor=1.0"
GATHER = "name=None, process_set=ALL"

FUNCTIONS = {
    "DistributedDataParallel": "module, message_size=10000000, delay_allreduce=False, "
    "shared_param=None, allreduce_trigger_params=None, retain_allreduce_buffers=False, "
    "allreduce_always_fp32=False, num_allreduce_streams=1, allreduce_communicators=None, "
    "gradient_average=True, gradient_predivide_factor=1.0, gradient_average_split_factor=None, "
    "prof=False",
    "DistributedOptimizer": "optimizer, named_parameters=None, compression=NONE, "
    "backward_passes_per_step=1, op=0, gradient_predivide_factor=1.0, num_groups=0, groups=None, "
    "sparse_as_dense=False, process_set=ALL",
    "ProcessSet": "ranks_or_comm",
    "add_process_set": "process_set",
    "allgather": f"tensor, {GATHER}",
    "allgather_async": f"tensor, {GATHER}",
    "allgather_object": "obj, name=None",
    "allreduce": f"tensor, {COMPRESSED}",
    "allreduce_": f"tensor, {REDUCE}",
    "allreduce_async": f"tensor, {REDUCE}",
    "allreduce_async_": f"tensor, {REDUCE}",
    "alltoall": f"tensor, splits=None, {GATHER}",
    "alltoall_async": f"tensor, splits=None, {GATHER}",
    "barrier": "process_set=ALL",
    "broadcast": f"tensor, root_rank, {GATHER}",
    "broadcast_": f"tensor, root_rank, {GATHER}",
    "broadcast_async": f"tensor, root_rank, {GATHER}",
    "broadcast_async_": f"tensor, root_rank, {GATHER}",
    "broadcast_object": f"obj, root_rank=0, {GATHER}",
    "broadcast_optimizer_state": "optimizer, root_rank, model=None",
    "broadcast_parameters": "params, root_rank",
    "ccl_built": "",
    "check_extension": "ext_name, ext_env_var, pkg_path, *args",
    "cross_rank": "",
    "cross_size": "",
    "cuda_built": "",
    "ddl_built": "",
    "gloo_built": "",
    "gloo_enabled": "",
    "grouped_allgather": f"tensors, {GATHER}",
    "grouped_allgather_async": f"tensors, {GATHER}",
    "grouped_allreduce": f"tensors, {COMPRESSED}",
    "grouped_allreduce_": f"tensors, {REDUCE}",
    "grouped_allreduce_async": f"tensors, {REDUCE}",
    "grouped_allreduce_async_": f"tensors, {REDUCE}",
    "grouped_reducescatter": f"tensors, {SCATTER.replace('op=0', 'compression=NONE, op=0')}",
    "grouped_reducescatter_async": f"tensors, {SCATTER}",
    "init": "comm=None, process_sets=None",
    "is_homogeneous": "",
    "is_initialized": "",
    "join": "device=-1",
    "local_rank": "",
    "local_size": "",
    "mpi_built": "",
    "mpi_enabled": "",
    "mpi_threads_supported": "",
    "nccl_built": "",
    "poll": "handle",
    "rank": "",
    "reducescatter": f"tensor, {SCATTER.replace('op=0', 'compression=NONE, op=0')}",
    "reducescatter_async": f"tensor, {SCATTER}",
    "remove_process_set": "process_set",
    "rocm_built": "",
    "shutdown": "",
    "size": "",
    "sparse_allreduce_async": "tensor, name, op, process_set=ALL",
    "start_timeline": "file_path, mark_cycles=False",
    "stop_timeline": "",
    "synchronize": "handle",
    "elastic.ElasticSampler": "dataset, shuffle=True, seed=0",
    "elastic.ElasticSampler.load_state_dict": "self, state_dict",
    "elastic.ElasticSampler.record_batch": "self, batch_idx, batch_size",
    "elastic.ElasticSampler.reset": "self",
    "elastic.ElasticSampler.set_epoch": "self, epoch",
    "elastic.ElasticSampler.state_dict": "self",
    "elastic.State": "bcast_object, get_rank",
    "elastic.TorchState": "model=None, optimizer=None, **kwargs",
    "elastic.TorchState.check_host_updates": "self",
    "elastic.TorchState.commit": "self",
    "elastic.TorchState.on_hosts_updated": "self, timestamp, update_res",
    "elastic.TorchState.on_reset": "self",
    "elastic.TorchState.register_reset_callbacks": "self, callbacks",
    "elastic.TorchState.reset": "self",
    "elastic.TorchState.restore": "self",
    "elastic.TorchState.save": "self",
    "elastic.TorchState.sync": "self",
    "elastic.run": "func",
    "elastic.run_fn": "func, reset",
    "elastic.state.get_handler_registry": "",
    "elastic.state.set_handler_registry": "registry",
    "mpi_ops.gpu_available": "ext_base_name='torch', verbose=False",
    "mpi_ops.handle_average_backwards_compatibility": "op, average",
    "mpi_ops.num_rank_is_power_2": "num_rank",
}
METHODS = ("included", "rank", "size")
VALUES = {"Average": 0, "Sum": 1, "Adasum": 2, "Min": 3, "Max": 4, "Product": 5}


def found(path, place=hvd):
    for name in path.split("."):
        place = getattr(place, name)
    return place


def shown(function):
    """Names and defaults of arguments, as in the table."""
    words = {id(hvd.global_process_set): "ALL", id(hvd.Compression.none): "NONE"}
    stars = {inspect.Parameter.VAR_POSITIONAL: "*", inspect.Parameter.VAR_KEYWORD: "**"}
    arguments = []
    for parameter in inspect.signature(function).parameters.values():
        text = stars.get(parameter.kind, "") + parameter.name
        if parameter.default is not inspect.Parameter.empty:
            text += f"={words.get(id(parameter.default), repr(parameter.default))}"
        arguments.append(text)
    return ", ".join(arguments)


@pytest.mark.parametrize("path", FUNCTIONS)
def test_signatures(path):
    assert shown(found(path)) == FUNCTIONS[path]
    assert found(path).__doc__, "what does it do?"


def test_values_and_classes():
    assert {name: getattr(hvd, name) for name in VALUES} == VALUES
    assert issubclass(hvd.HorovodInternalError, RuntimeError)
    assert hvd.Compression.none and hvd.Compression.fp16
    assert all(shown(getattr(hvd.ProcessSet, name)) == "self" for name in METHODS)
    first = ["num_features", "eps", "momentum", "affine", "track_running_stats"]
    assert list(inspect.signature(hvd.SyncBatchNorm).parameters)[:5] == first
    assert hvd.global_process_set.process_set_id == 0


def test_every_public_name_is_listed_and_has_a_text():
    for name in hvd.__all__:
        value = getattr(hvd, name)
        assert isinstance(value, (int, hvd.ProcessSet)) or value.__doc__, name
    assert not {name.split(".")[0] for name in FUNCTIONS} - set(hvd.__all__)


def test_modules_that_scripts_import():
    program = """
        import horovod, horovod.torch, horovod.torch.elastic, horovod.runner
        import sirtaki.torch
        from horovod.common.basics import HorovodBasics
        from horovod.common.elastic import ObjectState, State, run_fn
        from horovod.common.exceptions import HorovodInternalError, HostsUpdatedInterrupt
        from horovod.common.process_sets import ProcessSet, global_process_set
        from horovod.common.util import check_extension, env, gloo_built, split_list
        from horovod.torch.compression import Compression
        from horovod.torch.elastic.sampler import ElasticSampler
        from horovod.torch.elastic.state import TorchState
        from horovod.torch.functions import broadcast_object
        from horovod.torch.mpi_ops import Average, HorovodAllreduce, allreduce_async_, rank, size
        from horovod.torch.optimizer import DistributedOptimizer
        from horovod.torch.sync_batch_norm import SyncBatchNorm
        assert horovod.torch is sirtaki.torch and horovod.run is horovod.runner.run
        assert horovod.torch.HorovodInternalError is HorovodInternalError
        import threading
        from horovod.common.util import _cache, extension_available
        from horovod.runner.common.util.env import get_env_rank_and_size
        from horovod.runner.launch import run_commandline
        from horovod.runner.util.threads import execute_function_multithreaded, in_thread, on_event
        assert _cache(len)("ab") == 2 and get_env_rank_and_size() == (0, 1)
        assert extension_available("torch") and not extension_available("mxnet")
        event, seen = threading.Event(), []
        thread = on_event(event, seen.append, (1,))
        event.set()
        thread.join(60)
        in_thread(seen.append, (2,)).join(60)
        assert seen == [1, 2]
        assert execute_function_multithreaded(pow, [[2, 3], [3, 2]]) == {0: 8, 1: 9}
        for name in ("mxnet", "spark", "ray", "data", "nothing"):
            try:
                __import__(f"horovod.{name}")
                raise AssertionError(name)
            except ModuleNotFoundError as error:
                text = str(error)
                assert error.name.startswith("horovod.") and "not supported" in text, text
                assert "horovod.torch" in text and "hint:" in text and "install" not in text
        assert split_list([1, 2, 3], 2) == [[1, 2], [3]] and gloo_built(verbose=True)
        basics = HorovodBasics(__file__, "mpi_lib_v2")
        basics.init()
        assert basics.size() == size() == 1 and basics.Average == Average
        import os, torch
        weight = torch.ones(2, requires_grad=True)
        whole = HorovodAllreduce.apply(weight, None, "x", Average, 1.0, 1.0, global_process_set)
        whole.sum().backward()
        assert weight.grad.tolist() == [1.0, 1.0]
        assert horovod.run(os.getenv, ("RANK",), np=2) == ["0", "1"]
        for options in ({"hosts": "a:1,b:1"}, {"min_np": 1}):
            try:
                horovod.run(print, np=2, **options)
                raise AssertionError(options)
            except ValueError as error:
                assert "hint:" in str(error)
        try:
            horovod.torch.mpi_lib_v2.horovod_torch_poll
            raise AssertionError("there is no such function")
        except AttributeError as error:
            assert "hint:" in str(error)
    """
    names = Path(sirtaki.__file__).parent / "_horovod"
    code = f"import sys; sys.path.insert(0, {str(names)!r})\n" + textwrap.dedent(program)
    file = "import __main__; __main__.__file__ = '.'\n"
    done = subprocess.run(
        [sys.executable, "-c", file + code], capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr


def test_the_core_needs_no_framework():
    program = """
        import sys
        for name in ("torch", "tensorflow", "keras", "jax", "numpy"):
            sys.modules[name] = None  # importing it fails
        from sirtaki._core import capabilities, elastic, handlers, job, objects, process_sets
        process_sets.init()
        assert objects.broadcast_object({"a": 1}) == {"a": 1}
        assert objects.allgather_object("mine") == ["mine"] and capabilities.cuda_built() is False
        state = handlers.HandledState(lambda _: None, step=0)
        state.step = 3
        elastic.run(lambda state: state.commit())(state)
        assert state.step == 3
        try:
            import sirtaki
            sirtaki.data_parallel(lambda: 0)
            raise AssertionError("a function is no model")
        except TypeError as error:
            assert "hint:" in str(error)
    """
    subprocess.run([sys.executable, "-c", textwrap.dedent(program)], check=True)


def test_arrays_have_the_same_functions():
    import sirtaki.numpy as arrays

    there = {name: FUNCTIONS[name] for name in arrays.__all__ if name in FUNCTIONS}
    assert {"allreduce", "alltoall_async", "grouped_reducescatter_async", "join"} <= set(there)
    for name, of_torch in there.items():
        # Without PyTorch's compressors; objects may be those of a process set.
        gone = "compression=NONE, " if "reducescatter" in name else "nothing"
        expected = of_torch.replace(gone, "").replace("compression=NONE", "compression=None")
        if name == "allgather_object":
            expected += ", process_set=ALL"
        assert shown(getattr(arrays, name)) == expected, name
        assert getattr(arrays, name).__doc__, name
