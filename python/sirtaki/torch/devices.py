"""One process on several devices: ``torch.nn.DataParallel``, also where devices are not all GPUs.

PyTorch's module needs GPUs, all of them different. This one takes any devices, so a program can be
tried with several of them where there is only one, and its random numbers do not depend on timing:
replicas that share a device take turns. They share its parameters, too, so only devices other than
the first get copies; gradients reach the parameters of the module by autograd, on GPUs through
PyTorch's coalesced transfers, which nothing of ours would be faster than. Several processes with
several devices each need nothing more: :func:`DistributedOptimizer` reduces what arrives there.
"""

from __future__ import annotations

import threading
import warnings
from collections.abc import Callable, Sequence
from contextlib import ExitStack
from typing import Any, TypeVar, Union

import torch
from torch._utils import ExceptionWrapper
from torch.nn.parallel._functions import Broadcast

Device = Union[int, str, torch.device]
Module = TypeVar("Module", bound=torch.nn.Module)


class DataParallel(torch.nn.DataParallel):
    """Splits a batch over devices, applies the module to all parts, and puts the results together.

    Like ``torch.nn.DataParallel``: ``module`` is the module itself, whose parameters have to be on
    the first device and collect the gradients of all parts; inputs are split along ``dim``, and
    results are put together along it on ``output_device``, which is the first device unless
    another one is given. ``state_dict`` is the same, too. Of what parts write to buffers, such as
    running statistics, that of the first part is kept.

    ``device_ids`` are numbers of GPUs, or devices; the same one may be named several times.
    Without GPUs every number is the CPU. By default they are all GPUs, and where there are none
    the module is applied as it is. On a CPU, where one operation already uses all cores, this is
    for trying a program out, not for speed.

    >>> import torch
    >>> import sirtaki.torch
    >>> model = sirtaki.torch.DataParallel(torch.nn.Linear(4, 2), device_ids=["cpu", "cpu"])
    >>> model(torch.ones(6, 4)).shape
    torch.Size([6, 2])
    """

    def __init__(
        self,
        module: torch.nn.Module,
        device_ids: Sequence[Device] | None = None,
        output_device: Device | None = None,
        dim: int = 0,
    ) -> None:
        """The module on these devices."""
        torch.nn.Module.__init__(self)
        if device_ids is None:
            device_ids = range(torch.cuda.device_count())
        devices = [_device(device) for device in device_ids]
        self.module: Any = module
        self.dim: int = dim
        self.device_ids: Any = devices
        self.output_device: Any = None
        if not devices:
            return
        self.output_device = devices[0] if output_device is None else _device(output_device)
        self.src_device_obj: torch.device = devices[0]
        if len(devices) == 1:
            self.module.to(devices[0])

    def scatter(self, inputs: Any, kwargs: Any, device_ids: Any) -> Any:
        """The arguments of each part."""
        parts = scatter(inputs, device_ids, self.dim) if inputs else []
        named = scatter(kwargs, device_ids, self.dim) if kwargs else []
        count = max(len(parts), len(named))
        parts += [()] * (count - len(parts))
        named += [{}] * (count - len(named))
        return tuple(parts), tuple(named)

    def replicate(self, module: Module, device_ids: Any) -> list[Module]:
        """The module on each device."""
        return replicate(module, device_ids)

    def parallel_apply(self, replicas: Any, inputs: Any, kwargs: Any) -> list[Any]:
        """The results of all parts."""
        return parallel_apply(replicas, inputs, kwargs, self.device_ids[: len(replicas)])

    def gather(self, outputs: Any, output_device: Any) -> Any:
        """The results of all parts as one."""
        return gather(outputs, output_device, self.dim)


def _device(device: Device) -> torch.device:
    """A device that can be compared with those of tensors."""
    if isinstance(device, int):
        if not torch.cuda.is_available() or device == -1:
            return torch.device("cpu")
        return torch.device("cuda", device)
    device = torch.device(device)
    if device.type == "cuda" and device.index is None:
        return torch.device("cuda", torch.cuda.current_device())
    return torch.device("cpu") if device.type == "cpu" else device


def scatter(value: Any, devices: Sequence[torch.device], dim: int) -> list[Any]:
    """A value for each part: chunks of tensors, wherever they are in it, and the rest as it is.

    There are fewer parts than devices if tensors are too short.
    """
    if isinstance(value, torch.Tensor):
        chunks = value.chunk(len(devices), dim)
        return [chunk.to(device, non_blocking=True) for chunk, device in zip(chunks, devices)]
    make = _maker(value)
    if make is None or not value:
        return [value for _ in devices]
    entries = list(value.values()) if isinstance(value, dict) else list(value)
    parts = [scatter(entry, devices, dim) for entry in entries]
    return [make(list(part)) for part in zip(*parts)]


def gather(outputs: Sequence[Any], device: torch.device, dim: int) -> Any:
    """The results of parts as one."""
    first = outputs[0]
    if isinstance(first, torch.Tensor):
        if first.dim() == 0:
            warnings.warn(
                "DataParallel: results are numbers; they are returned as a vector", stacklevel=2
            )
            return torch.stack([output.to(device) for output in outputs])
        return torch.cat([output.to(device) for output in outputs], dim)
    if first is None:
        return None
    make = _maker(first)
    if make is None:
        raise TypeError(
            f"DataParallel: results of type {type(first).__name__} cannot be put together\n"
            "hint: return tensors, or tuples, lists or dictionaries of tensors"
        )
    if isinstance(first, dict):
        if any(output.keys() != first.keys() for output in outputs):
            raise ValueError("DataParallel: the dictionaries of two parts have different keys")
        return make([gather([output[key] for output in outputs], device, dim) for key in first])
    return make([gather(entries, device, dim) for entries in zip(*outputs)])


def _maker(value: Any) -> Callable[[list[Any]], Any] | None:
    """What makes a container like this one of other entries, if it is one."""
    kind: Any = type(value)
    if isinstance(value, tuple):
        return (lambda entries: kind(*entries)) if hasattr(value, "_fields") else tuple
    if isinstance(value, list):
        return list
    if isinstance(value, dict):
        return lambda entries: kind(zip(value.keys(), entries))
    return None


def replicate(module: Module, devices: Sequence[torch.device]) -> list[Module]:
    """The module on each device. The first is on the module's own device and has its buffers."""
    parameters, buffers = list(module.parameters()), list(module.buffers())
    copies = _on_devices(parameters, list(dict.fromkeys(devices)))
    replicas = []
    for number, device in enumerate(devices):
        values = dict(zip(parameters, copies[device]))
        own = {
            buffer: buffer if number == 0 else buffer.detach().to(device, copy=True)
            for buffer in buffers
        }
        replicas.append(_replica(module, values, own))
    return replicas


def _on_devices(
    tensors: list[torch.nn.Parameter], devices: list[torch.device]
) -> dict[torch.device, Sequence[torch.Tensor]]:
    """The tensors on each of these devices, with gradients that flow back if they are recorded."""
    own = devices[0]
    kept: Sequence[torch.Tensor] = tensors
    if not torch.is_grad_enabled():
        kept = [tensor.detach() for tensor in tensors]
    others = devices[1:]
    copies: dict[torch.device, Sequence[torch.Tensor]] = {own: kept}
    if others and all(device.type == "cuda" for device in devices):
        flat = Broadcast.apply([device.index for device in devices], *kept)
        for place, device in enumerate(devices):
            copies[device] = flat[place * len(kept) : (place + 1) * len(kept)]
        return copies
    for device in others:
        copies[device] = [tensor.to(device) for tensor in kept]
    return copies


def _replica(
    module: Module,
    parameters: dict[torch.nn.Parameter, torch.Tensor],
    buffers: dict[torch.Tensor, torch.Tensor],
) -> Module:
    """The module with these tensors in place of its own."""
    made: dict[torch.nn.Module, Any] = {
        part: part._replicate_for_data_parallel() for part in module.modules()
    }
    for part, replica in made.items():
        for name, child in part._modules.items():
            replica._modules[name] = None if child is None else made[child]
        for name, parameter in part._parameters.items():
            if parameter is None:
                replica._parameters[name] = None
            else:
                # By the module's own way: recurrent ones keep a list of their weights.
                setattr(replica, name, parameters[parameter])
        for name, buffer in part._buffers.items():
            replica._buffers[name] = None if buffer is None else buffers[buffer]
    return made[module]


def parallel_apply(
    replicas: Sequence[Any], inputs: Any, kwargs: Any, devices: Sequence[torch.device]
) -> list[Any]:
    """The results of all parts; devices at the same time, the parts of one take turns."""
    results: list[Any] = [None] * len(replicas)
    mode = _Mode()

    def work(device: torch.device) -> None:
        with mode.on(device):
            for part, place in enumerate(devices):
                if place != device:
                    continue
                try:
                    results[part] = replicas[part](*inputs[part], **kwargs[part])
                except Exception:
                    results[part] = ExceptionWrapper(where=f"in part {part} on device {device}")
                    return

    first, *others = dict.fromkeys(devices)
    threads = [threading.Thread(target=work, args=(device,)) for device in others]
    for thread in threads:
        thread.start()
    work(first)
    for thread in threads:
        thread.join()
    for result in results:
        if isinstance(result, ExceptionWrapper):
            result.reraise()
    return results


class _Mode:
    """What the thread that calls has switched on, for others that compute for it."""

    def __init__(self) -> None:
        self.grad = torch.is_grad_enabled()
        self.inference = torch.is_inference_mode_enabled()
        self.autocast = {kind: _autocast(kind) for kind in ("cpu", "cuda")}
        self.streams = {}
        if torch.cuda.is_available():
            self.streams = {
                device: torch.cuda.current_stream(device)
                for device in range(torch.cuda.device_count())
            }

    def on(self, device: torch.device) -> ExitStack:
        """The same on this thread, on a device."""
        stack = ExitStack()
        stack.enter_context(torch.inference_mode(self.inference))
        stack.enter_context(torch.set_grad_enabled(self.grad))
        if device.type == "cuda":
            stack.enter_context(torch.cuda.device(device))
            stack.enter_context(torch.cuda.stream(self.streams[device.index]))
        if device.type in self.autocast:
            enabled, kind = self.autocast[device.type]
            stack.enter_context(torch.autocast(device.type, kind, enabled=enabled))
        return stack


def _autocast(device: str) -> tuple[bool, torch.dtype]:
    """Whether operations on such devices choose their types here, and the smaller one."""
    if hasattr(torch, "get_autocast_dtype"):
        return torch.is_autocast_enabled(device), torch.get_autocast_dtype(device)
    # PyTorch before 2.4.
    if device == "cpu":
        return torch.is_autocast_cpu_enabled(), torch.get_autocast_cpu_dtype()
    return torch.is_autocast_enabled(), torch.get_autocast_gpu_dtype()
