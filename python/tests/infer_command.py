"""What the tests of ``sirtaki infer`` share: small networks, the command, and what it leaves."""

import os
import subprocess
import sys
import time
from pathlib import Path

import numpy as np
import onnx
import onnxruntime
import zarr
from onnx import TensorProto, helper, numpy_helper

BESIDE = Path(sys.executable).parent
SIRTAKI = os.environ.get("SIRTAKI_COMMAND", str(BESIDE / "sirtaki"))
SHAPE = (40, 52, 46)
PATIENCE = 300


class Net:
    """An ONNX graph, node by node, with weights that are the same in every run."""

    def __init__(self, axes=3, channels=1):
        self.axes, self.channels = axes, channels
        self.nodes, self.weights = [], []
        self.random = np.random.default_rng(axes)
        self.opset = 17

    def weight(self, *shape):
        name = f"w{len(self.weights)}"
        values = self.random.standard_normal(shape) * (1.5 / np.prod(shape[1:])) ** 0.5
        self.weights.append(numpy_helper.from_array(values.astype("float32"), name))
        return name

    def node(self, kind, inputs, **settings):
        name = f"v{len(self.nodes)}"
        self.nodes.append(helper.make_node(kind, inputs, [name], **settings))
        return name

    def conv(self, x, channels, to, edge=3, relu=True):
        weight = self.weight(to, channels, *[edge] * self.axes)
        pads = [edge // 2] * 2 * self.axes
        y = self.node(
            "Conv", [x, weight, self.weight(to)], kernel_shape=[edge] * self.axes, pads=pads
        )
        return self.node("Relu", [y]) if relu else y

    def save(self, path, out, space=None):
        space = space or [f"s{axis}" for axis in range(self.axes)]
        sizes = [f"o{axis}" for axis in range(self.axes)]
        x = helper.make_tensor_value_info("x", TensorProto.FLOAT, [1, self.channels, *space])
        y = helper.make_tensor_value_info(out, TensorProto.FLOAT, [1, "c", *sizes])
        graph = helper.make_graph(self.nodes, "net", [x], [y], self.weights)
        opset = [helper.make_opsetid("", self.opset)]
        onnx.save(helper.make_model(graph, opset_imports=opset, ir_version=8), path)
        return path


def plain(path, width=4, layers=2, axes=3, channels=1, out=2, space=None):
    net = Net(axes, channels)
    x, count = "x", channels
    for _ in range(layers):
        x, count = net.conv(x, count, width), width
    return net.save(path, net.conv(x, count, out, edge=1, relu=False), space)


def unet(path, norm=None):
    net = Net()
    pair = {"kernel_shape": [2] * 3, "strides": [2] * 3}
    fine = net.conv("x", 1, 4)
    if norm:
        ones = [np.ones(4, "float32"), np.zeros(4, "float32")]
        names = [f"{norm}{number}" for number in range(2)]
        net.weights += [numpy_helper.from_array(*pair) for pair in zip(ones, names)]
        fine = net.node(norm, [fine, *names])
    coarse = net.conv(net.node("MaxPool", [fine], **pair), 4, 8)
    up = net.node("ConvTranspose", [coarse, net.weight(8, 4, 2, 2, 2)], **pair)
    both = net.conv(net.node("Concat", [up, fine], axis=1), 8, 4)
    return net.save(path, net.conv(both, 4, 3, edge=1, relu=False))


def whole(model, volume):
    """What ONNX Runtime makes of the whole volume."""
    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = 1
    session = onnxruntime.InferenceSession(model, options, providers=["CPUExecutionProvider"])
    x = volume if volume.ndim == len(session.get_inputs()[0].shape) - 1 else volume[None]
    return session.run(None, {"x": x[None].astype("float32")})[0][0]


def command(*words):
    return [SIRTAKI, "infer", *map(str, words)]


def environment(**more):
    # The Python that is first in PATH has ONNX Runtime.
    return {**os.environ, "PATH": f"{BESIDE}{os.pathsep}{os.environ['PATH']}", **more}


def infer(*words, code=0, **variables):
    done = subprocess.run(
        command(*words),
        env=environment(**variables),
        capture_output=True,
        text=True,
        timeout=PATIENCE,
        check=False,
    )
    assert done.returncode == code, done.stderr
    assert "panicked" not in done.stderr
    return done


def start(*words):
    return subprocess.Popen(
        command(*words),
        env=environment(),
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )


def ledger_of(output):
    return output.with_name(f".{output.name}.job") / "ledger"


def done_in(output):
    """How many tiles the ledger says are done."""
    try:
        return ledger_of(output).read_text().count('"done":')
    except OSError:
        return 0


def workers_of(output):
    """The processes that work on an output."""
    found = []
    for process in Path("/proc").glob("[0-9]*"):
        try:
            words = (process / "cmdline").read_bytes().split(b"\0")
        except OSError:
            continue
        if b"infer-worker" in words and str(output).encode() in words:
            found.append(int(process.name))
    return found


def wait_for(condition):
    deadline = time.monotonic() + PATIENCE
    while not condition():
        assert time.monotonic() < deadline, "it does not happen"
        time.sleep(0.01)


def left_behind(folder):
    return [path.name for path in folder.iterdir() if path.name.startswith(".")]


def make(folder):
    """A volume in two formats, two networks, and what they make of it."""
    volume = np.random.default_rng(1).standard_normal(SHAPE).astype("float32")
    np.save(folder / "in.npy", volume)
    zarr.create_array(str(folder / "in.zarr"), data=volume, chunks=(16, 16, 16))
    plain(folder / "plain.onnx")
    unet(folder / "unet.onnx")
    nets = {name: whole(folder / f"{name}.onnx", volume) for name in ("plain", "unet")}
    return folder, volume, nets
