"""Networks on volumes: sirtaki beside PyTorch on the whole volume, tiles cut by hand, and MONAI's sliding window.

One thread per worker. Systems take turns, so that all see the same conditions; shown are medians of the rounds. Errors are
in standard deviations of the output, against PyTorch on the whole volume for PyTorch's models, and against ONNX Runtime on
the whole volume for those in ONNX. PyTorch computes with oneDNN, whose kernels may differ in the last bit from one shape
to another; without it, it is several times slower and equal in every bit. Called by `cargo xtask bench volume` with the
`sirtaki` command of an environment that has PyTorch, MONAI, ONNX, ONNX Runtime and SciPy; then come the parts that are
wanted, each of which takes minutes: `plain` and `unet` (speed), `memory`, `labels`; all of them if none is named.
"""

import argparse
import itertools
import json
import os
import pathlib
import statistics
import subprocess
import sys
import tempfile
import time

import monai
import numpy as np
import onnx
import onnxruntime
import scipy.ndimage
import torch
import torch.nn.functional as F
from monai.inferers import sliding_window_inference
from onnx import TensorProto, helper, numpy_helper

import sirtaki

CORE = 64
PARTS = ("seconds", "computing", "reading", "writing")


class Net(torch.nn.Module):
    """A graph of ONNX that PyTorch computes, too."""

    def __init__(self):
        super().__init__()
        self.nodes, self.weights = [], {}
        self.random = np.random.default_rng(0)

    def add(self, kind, *inputs, **settings):
        self.nodes.append((kind, inputs, f"v{len(self.nodes)}", settings))
        return self.nodes[-1][2]

    def weight(self, *shape):
        values = self.random.standard_normal(shape) * (1.5 / np.prod(shape[1:])) ** 0.5
        self.weights[f"w{len(self.weights)}"] = torch.from_numpy(values.astype("float32"))
        return f"w{len(self.weights) - 1}"

    def conv(self, x, channels, to, edge=3, relu=True):
        weight, bias = self.weight(to, channels, edge, edge, edge), self.weight(to)
        y = self.add("Conv", x, weight, bias, kernel_shape=[edge] * 3, pads=[edge // 2] * 6)
        return self.add("Relu", y) if relu else y

    def forward(self, x):
        values = {"x": x, **self.weights}
        for kind, inputs, name, settings in self.nodes:
            a, *rest = (values[one] for one in inputs)
            if kind == "Conv":
                values[name] = F.conv3d(a, *rest, padding=settings["pads"][0])
            elif kind == "Relu":
                values[name] = F.relu(a)
            elif kind == "MaxPool":
                values[name] = F.max_pool3d(a, 2)
            elif kind == "ConvTranspose":
                values[name] = F.conv_transpose3d(a, *rest, stride=2)
            else:
                values[name] = torch.cat([a, *rest], 1)
        return values[self.nodes[-1][2]]

    def save(self, path):
        nodes = [helper.make_node(k, list(i), [n], **s) for k, i, n, s in self.nodes]
        x = helper.make_tensor_value_info("x", TensorProto.FLOAT, [1, 1, "d", "h", "w"])
        y = helper.make_tensor_value_info(nodes[-1].output[0], TensorProto.FLOAT, [1, "c", "a", "b", "e"])
        weights = [numpy_helper.from_array(w.numpy(), name) for name, w in self.weights.items()]
        graph = helper.make_graph(nodes, "net", [x], [y], weights)
        onnx.save(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8), path)


def plain(layers=4):
    net, x, channels = Net(), "x", 1
    for _ in range(layers):
        x, channels = net.conv(x, channels, 16), 16
    net.conv(x, 16, 2, edge=1, relu=False)
    return net


def unet(width=8):
    net, pair = Net(), {"kernel_shape": [2] * 3, "strides": [2] * 3}
    fine = net.conv(net.conv("x", 1, width), width, width)
    coarse = net.conv(net.conv(net.add("MaxPool", fine, **pair), width, 2 * width), 2 * width, 2 * width)
    up = net.add("ConvTranspose", coarse, net.weight(2 * width, width, 2, 2, 2), **pair)
    both = net.conv(net.conv(net.add("Concat", up, fine, axis=1), 2 * width, width), width, width)
    net.conv(both, width, 2, edge=1, relu=False)
    return net


def by_hand(net, x, halo, step):
    """Core and halo, cropped: what sirtaki does, in memory."""
    y = torch.empty(1, 2, *x.shape[2:])
    halo = -(-halo // step) * step
    for at in itertools.product(*(range(0, size, CORE) for size in x.shape[2:])):
        read, cut, write = [], [], []
        for begin, size in zip(at, x.shape[2:]):
            end = min(begin + CORE, size)
            first = max(0, begin - halo)
            read.append(slice(first, min(size, end + halo)))
            cut.append(slice(begin - first, end - first))
            write.append(slice(begin, end))
        y[(slice(None), slice(None), *write)] = net(x[(slice(None), slice(None), *read)])[
            (slice(None), slice(None), *cut)
        ]
    return y


def command(sirtaki_command, model, source, sink, *words):
    """One run of `sirtaki infer`: seconds, and what it says."""
    library = pathlib.Path(onnxruntime.__file__).parent / "capi"
    done = subprocess.run(
        [sirtaki_command, "infer", model, source, sink, "--json", "--quiet", *map(str, words)],
        env={**os.environ, "SIRTAKI_ONNXRUNTIME": str(library)},
        capture_output=True,
        text=True,
        check=False,
    )
    if done.returncode != 0:
        sys.exit(done.stderr)
    return json.loads(done.stdout)


def contest(name, net, halo, step, volume, folder, sirtaki_command, rounds):
    x, source, model = torch.from_numpy(volume)[None, None], folder / "in.npy", folder / f"{name}.onnx"
    net.save(model)
    results, seconds = {}, {}

    def turn(system, compute):
        began = time.perf_counter()
        result, own = compute()
        seconds.setdefault(system, []).append(own or time.perf_counter() - began)
        results[system] = result

    def infer_torch():
        sink = folder / "torch.npy"
        sirtaki.infer(net, source, sink, halo=halo, stride=step, tile=[CORE] * 3, replace=True)
        return np.load(sink), None

    def infer_onnx(workers):
        sink = folder / f"onnx-{workers}.npy"
        said = command(sirtaki_command, model, source, sink, "-n", workers, "--replace")
        results[f"workers {workers}"] = said["workers"]
        return np.load(sink), said["seconds"]

    def monai_with(overlap):
        return sliding_window_inference(x, (CORE,) * 3, 1, net, overlap=overlap)[0].numpy()

    for number in range(rounds):
        print(f"  {name}: round {number + 1} of {rounds}", file=sys.stderr)
        turn("PyTorch, whole", lambda: (net(x)[0].numpy(), None))
        turn("PyTorch, tiles by hand", lambda: (by_hand(net, x, halo, step)[0].numpy(), None))
        turn("MONAI, overlap 0.25", lambda: (monai_with(0.25), None))
        turn("MONAI, overlap 0.5", lambda: (monai_with(0.5), None))
        turn("sirtaki.infer, PyTorch", infer_torch)
        turn("sirtaki infer, 1 worker", lambda: infer_onnx(1))
        turn("sirtaki infer, 2 workers", lambda: infer_onnx(2))
    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = 1
    session = onnxruntime.InferenceSession(model, options, providers=["CPUExecutionProvider"])
    whole = {"PyTorch": results["PyTorch, whole"], "ONNX": session.run(None, {"x": x.numpy()})[0][0]}
    print(f"\n{name}: {' × '.join(map(str, volume.shape))}\n\n| system | seconds | error | equal bits |\n|---|---|---|---|")
    for system, times in seconds.items():
        reference = whole["ONNX" if system.startswith("sirtaki infer,") else "PyTorch"]
        error = np.abs(results[system] - reference).max() / reference.std()
        equal = "yes" if np.array_equal(results[system], reference) else "no"
        print(f"| {system} | {statistics.median(times):.2f} | {error:.1e} | {equal} |")
    one, two = ([sum(w[part] for w in results[f"workers {n}"]) for part in PARTS] for n in (1, 2))
    print("\n| seconds of all workers | " + " | ".join(PARTS) + " |\n" + "|---" * (len(PARTS) + 1) + "|")
    for number, parts in ((1, one), (2, two)):
        print(f"| {number} | " + " | ".join(f"{part:.2f}" for part in parts) + " |")
    overhead = 1 - one[1] / one[0]
    ratio = lambda one, two: statistics.median(a / b for a, b in zip(seconds[one], seconds[two]))
    return [
        ("time over tiles by hand", ratio("sirtaki.infer, PyTorch", "PyTorch, tiles by hand"), "<=", 1.05),
        ("speed against MONAI, overlap 0.25", ratio("MONAI, overlap 0.25", "sirtaki.infer, PyTorch"), ">=", 1.3),
        ("speed against MONAI, overlap 0.5", ratio("MONAI, overlap 0.5", "sirtaki.infer, PyTorch"), ">=", 2.5),
        ("time outside the model, 1 worker", overhead, "<=", 0.03),
        ("speed-up of 2 workers", ratio("sirtaki infer, 1 worker", "sirtaki infer, 2 workers"), ">=", 1.9),
    ]


def memory(folder, sirtaki_command, edges):
    """The largest worker's memory for one convolution on volumes of two sizes."""
    model, most = folder / "one.onnx", []
    plain(layers=1).save(model)
    for edge in edges:
        # Holes in the file: nothing but its size matters.
        source = np.lib.format.open_memmap(folder / "large.npy", "w+", "float32", (edge,) * 3)
        source.flush()
        del source
        words = ("-n", 1, "--replace", "--output", "argmax")
        said = command(sirtaki_command, model, folder / "large.npy", folder / "l.npy", *words)
        most.append(max(worker["memory"] for worker in said["workers"]))
        print(f"one convolution on {edge}³: {most[-1] / 1e6:.0f} MB per worker, {said['seconds']:.0f} s")
    return [
        ("memory of the larger volume over the smaller", most[1] / most[0], "<=", 1.05),
        ("megabytes per worker", most[1] / 1e6, "<=", 600),
    ]


def labels(folder, sirtaki_command, edge):
    """Objects of a noisy volume, as many as 0.08 for each voxel, beside SciPy on the whole."""
    volume = (np.random.default_rng(2).random((edge,) * 3, dtype="float32") < 0.12).astype("float32") - 0.5
    np.save(folder / "spots.npy", volume)
    net = Net()
    net.weights = {"w": torch.ones(1, 1, 1, 1, 1), "b": torch.zeros(1)}
    net.add("Conv", "x", "w", "b", kernel_shape=[1] * 3, pads=[0] * 6)
    net.save(folder / "spots.onnx")
    words = ("-n", 2, "--labels", "--replace", "--tile", "128,128,128")
    said = command(sirtaki_command, folder / "spots.onnx", folder / "spots.npy", folder / "objects.npy", *words)
    began = time.perf_counter()
    want, count = scipy.ndimage.label(volume > 0)
    scipy_seconds = time.perf_counter() - began
    got = np.load(folder / "objects.npy")
    # Equal up to names: each label of one is one label of the other.
    names = np.zeros(count + 1, "uint32")
    names[want.ravel()] = got.ravel()
    equal = said["objects"] == count == got.max() and np.array_equal(names[want], got)
    equal = equal and len(np.unique(names)) == count + 1
    stitching = max(worker["labelling"] for worker in said["workers"])
    tiles = said["tiles"]
    print(f"\n{edge}³ in {tiles} tiles: {count} objects; all of it {said['seconds']:.1f} s, SciPy on the whole {scipy_seconds:.1f} s")
    print(f"objects of tiles joined and all tiles renamed in {stitching:.1f} s by 2 workers; equal to SciPy's: {equal}")
    return [
        ("millions of objects", count / 1e6, ">=", 10),
        ("seconds to stitch them", stitching, "<=", 60),
        ("equal to scipy.ndimage.label up to names", int(equal), ">=", 1),
    ]


def arguments():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("command", help="the `sirtaki` to measure")
    parser.add_argument("parts", nargs="*", help="what to measure [default: all]")
    parser.add_argument("--edge", type=int, default=192, help="of the volume that networks compete on")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--memory-edges", type=int, nargs=2, default=(512, 1024))
    parser.add_argument("--labels-edge", type=int, default=528)
    asked = parser.parse_args()
    for part in asked.parts:
        if part not in PARTS_OF_BENCH:
            parser.error(f"there is no part {part}; the parts are {', '.join(PARTS_OF_BENCH)}")
    return asked


PARTS_OF_BENCH = ("plain", "unet", "memory", "labels")


def main():
    asked = arguments()
    parts = asked.parts or PARTS_OF_BENCH
    torch.set_num_threads(1)
    torch.set_grad_enabled(False)
    load = os.getloadavg()[0]
    print(f"PyTorch {torch.__version__}, MONAI {monai.__version__}, ONNX Runtime {onnxruntime.__version__}")
    print(f"{os.cpu_count()} cores; load before: {load:.1f}")
    verdicts = []
    with tempfile.TemporaryDirectory() as place:
        folder = pathlib.Path(place)
        networks = (("plain", plain, 4, 1), ("unet", unet, 12, 2))
        for name, make, halo, step in networks:
            if name in parts:
                volume = np.random.default_rng(1).standard_normal((asked.edge,) * 3).astype("float32")
                np.save(folder / "in.npy", volume)
                found = contest(name, make(), halo, step, volume, folder, asked.command, asked.rounds)
                verdicts += [(f"{name}: {what}", *rest) for what, *rest in found]
        if "memory" in parts:
            verdicts += memory(folder, asked.command, asked.memory_edges)
        if "labels" in parts:
            verdicts += labels(folder, asked.command, asked.labels_edge)
    print("\n| claim | figure | goal | |\n|---|---|---|---|")
    for what, value, way, goal in verdicts:
        reached = value <= goal if way == "<=" else value >= goal
        print(f"| {what} | {value:.3g} | {way} {goal} | {'reached' if reached else 'MISSED'} |")


if __name__ == "__main__":
    main()
