"""A mixed-scale dense network of depth 100 on 2048 × 1024 × 1024 voxels, by `sirtaki.infer` on one GPU.

The network is that of the documents: 3×3×3 kernels, width 1, dilations 1 to 10 in turns, each layer sees the volume and all
feature maps before it; weights are drawn as its authors do (Pelt and Sethian 2018: normal, with variance two over the number of
incoming and outgoing connections of a voxel), and the last layer's normal, too. It reaches 550 voxels far; with
a tolerance, `sirtaki.infer` finds the smallest halo whose error is at most that part of the output's deviation. The goal is a
thousandth; half of it is asked for, because the largest error in a large volume is larger than in those it is found with. The
volume is made on the GPU and written to a file; measured is the whole call: search for the halo, reading, computing, writing.

How a layer is computed: a convolution from c channels to one is 27 products of a row of c weights with the c feature maps,
each shifted by its tap and summed. The products of all 27 taps are one matrix product, (27 × c) · (c × voxels), that reads every
feature map once instead of 27 times, and the shifted sum is one strided view that `torch.sum` adds up in single precision.
Feature maps lie in one buffer, planes first, with zeros between rows and planes that are the padding; nothing is copied or
concatenated. Tiles are whole slabs of the volume, as thick as memory allows, so that only one axis has a halo.

Bytes per voxel in single precision, summed over the layers: feature maps are read once, 4 · 5,050; products are written and
read, 100 · 2 · 27 · 4; sums are written, read twice and written twice, 100 · 20: 43.8 kB. For 2.15 · 10⁹ voxels and two thirds
more for halos of about 50 that is 157 TB, 36 s at the 4.3 TB/s of a plain copy on an H200. The 9.7 · 10¹⁴ operations take 15 s
at the 67 TFLOP/s of the datasheet. With half precision it is half of the bytes, and twice as many planes fit, with less halo.
Computed as it is written down, tap by tap, the same network reads 136,350 values per voxel.

Precision: single throughout, without TF32, unless `--precision half` is given (feature maps and products in half precision, sums
in single). Rounding to half precision costs more than the tolerance: a few thousandths of a deviation after 100 layers, and a
tile's roundings are others than the whole's. Errors are measured at random places, half of them at seams of tiles, in standard
deviations of the output: against a computation with three times the halo on all sides, in the same precision and in single.

Called by `run.sh msd` of the folder that `cargo xtask gpu-bundle` makes. `--size` and `--depth` make it smaller; `--device cpu`
shows that it works, and nothing else.
"""

import argparse
import json
import math
import os
import pathlib
import tempfile
import time

import numpy as np
import torch
import torch.nn.functional as F

import sirtaki

DILATIONS = 10
GOAL = 500.0
TOLERANCE = 1e-3
ASKED = TOLERANCE / 2
PRODUCTS = 1 << 30  # products of taps that are kept at once, apart from those of a few planes more
CORE = 16  # voxels of each edge of a place at which errors are measured


class MSD(torch.nn.Module):
    """Width 1, one channel in, one out. Feature maps lie in one buffer that is kept from tile to tile."""

    def __init__(self, depth, seed=0):
        super().__init__()
        draw = torch.Generator().manual_seed(seed)
        self.depth, self.pad = depth, min(depth, DILATIONS)
        self.weights, self.biases = torch.nn.ParameterList(), torch.nn.ParameterList()
        deviation = math.sqrt(2 / (27 * (1 + depth - 1) + 1))
        for layer in range(depth):
            weight = torch.randn(1, layer + 1, 3, 3, 3, generator=draw) * deviation
            self.weights.append(torch.nn.Parameter(weight, requires_grad=False))
            self.biases.append(torch.nn.Parameter(torch.randn(1, generator=draw) * 0.01, requires_grad=False))
        head = torch.randn(1, depth + 1, 1, 1, 1, generator=draw)
        self.head = torch.nn.Parameter(head, requires_grad=False)
        self.buffer = None
        self.run_with(torch.float32, "cpu")

    def run_with(self, dtype, device):
        """Chooses precision and device; what was kept is given back."""
        self.dtype, self.place, self.buffer, self.products = dtype, torch.device(device), None, None
        if self.place.type == "cuda":
            torch.cuda.empty_cache()
        self.rows = [self._taps(weight[0]) for weight in self.weights]
        self.last = self._padded(self.head.reshape(1, -1))
        self.offsets = [float(bias) for bias in self.biases]
        return self

    def _taps(self, weight):
        return self._padded(weight.reshape(weight.shape[0], 27).t())

    def _padded(self, matrix):
        """Rows of a multiple of 8 weights, which matrix products are fastest with; the last ones are zero."""
        columns = -(-matrix.shape[1] // 8) * 8
        return F.pad(matrix, (0, columns - matrix.shape[1])).to(self.place, self.dtype).contiguous()

    def geometry(self, sizes):
        """Planes, rows and columns with zeros between them; a row is a multiple of 16 bytes."""
        depth, height, width = sizes
        return depth + 2 * (self.pad + 1), height + self.pad, -(-(width + self.pad) // 8) * 8

    def bytes_of(self, sizes):
        planes, rows, columns = self.geometry(sizes)
        return planes * rows * columns * (self.last.shape[1]) * self.dtype.itemsize

    def forward(self, x):
        """A tile of shape (1, 1, depth, height, width), in single precision, on any device."""
        sizes = x.shape[2:]
        planes, rows, columns = self.geometry(sizes)
        plane = rows * columns
        features = self._features(self.last.shape[1], planes * plane)
        inside = features.view(-1, planes, rows, columns)
        inside = inside[:, self.pad + 1 : self.pad + 1 + sizes[0], : sizes[1], : sizes[2]]
        inside[0].copy_(x[0, 0].to(self.place))
        step = max(1, min(sizes[0], PRODUCTS // (27 * plane)))
        for layer, taps in enumerate(self.rows):
            dilation = layer % DILATIONS + 1
            for first in range(0, sizes[0], step):
                count = min(step, sizes[0] - first)
                total = self._layer(features, taps, dilation, (first, count), (plane, columns, sizes))
                total.add_(self.offsets[layer])
                torch.clamp_min(total, 0, out=inside[layer + 1, first : first + count])
        result = torch.empty(1, 1, *sizes, device=self.place)
        for first in range(0, sizes[0], step):
            count = min(step, sizes[0] - first)
            begin = (self.pad + 1 + first) * plane
            given = torch.mm(self.last, features[:, begin : begin + count * plane]).view(count, rows, columns)
            result[0, 0, first : first + count].copy_(given[:, : sizes[1], : sizes[2]])
        return result

    def _layer(self, features, taps, dilation, span, geometry):
        """The sums of all taps for some planes."""
        (first, count), (plane, columns, sizes) = span, geometry
        begin = (self.pad - dilation + first) * plane
        voxels = (count + 2 * (dilation + 1)) * plane
        need = 27 * voxels
        if self.products is None or self.products.numel() < need:
            self.products = None
            self.products = torch.empty(need, dtype=self.dtype, device=self.place)
        products = self.products[:need].view(27, voxels)
        torch.mm(taps, features[: taps.shape[1], begin : begin + voxels], out=products)
        strides = [
            9 * voxels + dilation * plane,
            3 * voxels + dilation * columns,
            voxels + dilation,
            plane,
            columns,
            1,
        ]
        start = plane - dilation * (columns + 1)
        shifted = products.as_strided((3, 3, 3, count, *sizes[1:]), strides, start)
        return torch.sum(shifted, (0, 1, 2))

    def _features(self, channels, voxels):
        need = channels * voxels
        if self.buffer is None or self.buffer.numel() < need:
            self.buffer = None
            self.buffer = torch.empty(need, dtype=self.dtype, device=self.place)
        return self.buffer[:need].zero_().view(channels, voxels)

    def plainly(self, x):
        """The same network as it is usually written down."""
        for layer, (weight, bias) in enumerate(zip(self.weights, self.biases)):
            dilation = layer % DILATIONS + 1
            made = F.conv3d(x, weight.to(x.device), bias.to(x.device), padding=dilation, dilation=dilation)
            x = torch.cat([x, torch.relu(made)], 1)
        return F.conv3d(x, self.head.to(x.device))


def make(path, sizes, device):
    """Smooth noise of mean 0 and deviation 1, made on the device and written slab by slab."""
    volume = np.lib.format.open_memmap(path, "w+", "float32", tuple(sizes))
    torch.manual_seed(1)
    for first in range(0, sizes[0], 64):
        count = min(64, sizes[0] - first)
        noise = torch.randn(1, 1, count + 2, sizes[1] + 2, sizes[2] + 2, device=device)
        slab = F.avg_pool3d(noise, 3, 1)[0, 0] * math.sqrt(27)
        volume[first : first + count] = slab.cpu().numpy()
    volume.flush()


def thickness(net, sizes, device, halo):
    """Planes of a tile that fit into memory with a halo on both sides, with as few tiles as that allows."""
    if device.type == "cpu":
        return max(32, sizes[0] // 3)
    free, _ = torch.cuda.mem_get_info(device)
    free += torch.cuda.memory_reserved(device)
    plane = math.prod(net.geometry((1, *sizes[1:]))[1:])
    products = (PRODUCTS + 27 * plane * 2 * (DILATIONS + 1)) * net.dtype.itemsize
    # Besides feature maps: sums, the tile and its result, and what PyTorch keeps.
    each = plane * (net.last.shape[1] * net.dtype.itemsize + 8)
    planes = int((free * 0.96 - products - (PRODUCTS // 9) * 4 - (1 << 30)) // each) - 2 * (halo + DILATIONS + 1)
    if planes < 1:
        raise SystemExit(f"error: a halo of {halo} voxels leaves no room for a tile")
    tiles = -(-sizes[0] // planes)
    return -(-sizes[0] // tiles)


def errors(net, source, sink, halo, core, places, device):
    """The largest differences at random places: with a larger halo in the same precision, and in single precision."""
    volume, result = np.load(source, mmap_mode="r"), np.load(sink, mmap_mode="r")
    draw = np.random.default_rng(7)
    deviation = float(np.std(result[tuple(slice(0, size, max(1, size // 128)) for size in result.shape)]))
    seams = [first for first in range(core, volume.shape[0], core)] or [volume.shape[0] // 2]
    worst = {}
    for dtype in {net.dtype: None, torch.float32: None}:
        net.run_with(dtype, device)
        worst[dtype], draw = 0.0, np.random.default_rng(7)
        for number in range(places):
            at = [int(draw.integers(0, max(1, size - CORE))) for size in volume.shape]
            if number % 2:
                at[0] = min(int(draw.choice(seams)) - CORE // 2, volume.shape[0] - CORE)
            low = [max(0, first - halo) for first in at]
            high = [min(size, first + CORE + halo) for first, size in zip(at, volume.shape)]
            read = np.array(volume[tuple(slice(*span) for span in zip(low, high))])
            whole = net(torch.from_numpy(read)[None, None])[0, 0].cpu().numpy()
            want = whole[tuple(slice(first - begin, first - begin + CORE) for first, begin in zip(at, low))]
            got = result[tuple(slice(first, first + CORE) for first in at)]
            worst[dtype] = max(worst[dtype], float(np.abs(want - got).max()) / deviation)
    return worst, deviation


def check(net, device):
    """The largest difference from the network as it is usually written down, in deviations, on a small volume."""
    torch.backends.cudnn.allow_tf32 = torch.backends.cuda.matmul.allow_tf32 = False
    x = torch.randn(1, 1, 40, 36, 44, generator=torch.Generator().manual_seed(3)).to(device)
    want = net.plainly(x)
    found = {}
    for dtype in (torch.float32, torch.float16):
        found[dtype] = float((net.run_with(dtype, device)(x) - want).abs().max() / want.std())
    return found


def arguments():
    parser = argparse.ArgumentParser(description="A mixed-scale dense network on a large volume.")
    parser.add_argument("--size", default="2048,1024,1024", help="voxels along each axis")
    parser.add_argument("--depth", type=int, default=100)
    parser.add_argument("--places", type=int, default=12, help="random places at which errors are measured")
    parser.add_argument("--precision", choices=("single", "half"), default="single")
    parser.add_argument("--device", default="cuda")
    parser.add_argument("--folder", help="where the volumes are written (two times 8 GiB)")
    parser.add_argument("--output", help="a file for the figures as JSON")
    return parser.parse_args()


def main():
    asked = arguments()
    device, sizes = torch.device(asked.device), [int(size) for size in asked.size.split(",")]
    torch.backends.cuda.matmul.allow_fp16_reduced_precision_reduction = False
    torch.set_grad_enabled(False)
    net = MSD(asked.depth).eval()
    exact = sum(layer % DILATIONS + 1 for layer in range(asked.depth))
    found = check(net, device)
    name = torch.cuda.get_device_name(device) if device.type == "cuda" else "processor"
    print(f"PyTorch {torch.__version__}, {name}; depth {asked.depth}, {sum(p.numel() for p in net.parameters())} weights")
    print("against conv3d on a small volume: " + ", ".join(f"{d}: {e:.1e}" for d, e in found.items()))
    if found[torch.float32] > 1e-3:
        raise SystemExit("error: the network differs from what conv3d computes")
    precision = {"single": torch.float32, "half": torch.float16}[asked.precision]
    net.run_with(precision, device)
    with tempfile.TemporaryDirectory(dir=asked.folder) as place:
        source, sink = pathlib.Path(place) / "in.npy", pathlib.Path(place) / "out.npy"
        make(source, sizes, device)
        known = {"halo": exact, "tolerance": ASKED, "memory": 16 << 30}
        # The halo, from which follows how thick tiles can be. It is found once more below, where time counts.
        corner, trial = [(0, min(64, size)) for size in sizes], pathlib.Path(place) / "corner.npy"
        halo = sirtaki.infer(net, source, trial, region=corner, tile=[64, 64, 64], **known)["halo"][0]
        trial.unlink()
        core = thickness(net.run_with(precision, device), sizes, device, halo)
        began = time.perf_counter()
        said = sirtaki.infer(net, source, sink, tile=[core, *sizes[1:]], **known)
        seconds = time.perf_counter() - began
        most = torch.cuda.max_memory_allocated(device) / 2**30 if device.type == "cuda" else 0.0
        larger = min(exact, 3 * halo)
        worst, deviation = errors(net, source, sink, larger, core, asked.places, device)
    voxels = math.prod(sizes)
    figures = {
        "device": name,
        "torch": torch.__version__,
        "size": sizes,
        "depth": asked.depth,
        "precision": str(precision),
        "seconds": seconds,
        "computing": said["computing"],
        "reading": said["reading"],
        "writing": said["writing"],
        "tiles": said["tiles"],
        "core": core,
        "halos": said["halo"],
        "halo_of_reference": larger,
        "tolerance": ASKED,
        "error_of_tiles": worst[precision],
        "error_with_precision": worst[torch.float32],
        "deviation": deviation,
        "gpu_gib": most,
    }
    print(
        f"{' × '.join(map(str, sizes))} in {seconds:.1f} s: {voxels / seconds / 1e6:.1f} million voxels/s; {said['tiles']} tiles of "
        f"{core} planes; halos {said['halo']} of {exact} for a tolerance of {ASKED:g}; {said['voxels'] / voxels:.2f} voxels computed per voxel"
    )
    print(f"  of it computing {said['computing']:.1f} s; beside it reading {said['reading']:.1f}, writing {said['writing']:.1f}")
    print(f"  most GPU memory {most:.1f} GiB; computed in {precision}")
    print(
        f"  at {asked.places} places of {CORE}³, half at seams, in deviations of the output ({deviation:.3g}): with a halo of {larger} "
        f"in the same precision {worst[precision]:.1e}; in single precision {worst[torch.float32]:.1e}"
    )
    print("\n| claim | figure | goal | |\n|---|---|---|---|")
    for what, value, goal in (("seconds", seconds, GOAL), ("error of tiles", worst[precision], TOLERANCE)):
        print(f"| {what} | {value:.3g} | <= {goal:g} | {'reached' if value <= goal else 'MISSED'} |")
    if asked.output:
        with open(asked.output, "w", encoding="utf-8") as file:
            json.dump(figures, file, indent=1)
        os.chmod(asked.output, 0o644)


if __name__ == "__main__":
    main()
