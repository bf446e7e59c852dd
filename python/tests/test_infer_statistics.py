"""What ``sirtaki infer`` needs the whole volume for: objects, scaling, normalisation, blending."""

import itertools
import json

import numpy as np
import onnxruntime
import pytest
import scipy.ndimage
import tifffile
import zarr
from infer_command import (
    SHAPE,
    Net,
    done_in,
    infer,
    left_behind,
    make,
    start,
    unet,
    wait_for,
    whole,
    workers_of,
)
from onnx import numpy_helper


@pytest.fixture(scope="module")
def made(tmp_path_factory):
    return make(tmp_path_factory.mktemp("made"))


def spots(path, classes):
    """Blurred noise against thresholds: objects of all sizes, some through many tiles."""
    net = Net()
    x = net.conv("x", 1, 4)
    return net.save(path, net.conv(x, 4, classes, edge=3, relu=False))


def same_objects(labels, want):
    """Whether labels are equal up to names."""
    pairs = np.unique(np.stack([labels.ravel(), want.ravel()]), axis=1)
    return all(len(np.unique(side)) == pairs.shape[1] for side in pairs)


def objects_of(values):
    """What SciPy finds: connected voxels of equal class, each class for itself."""
    if values.shape[0] == 1:
        return scipy.ndimage.label(values[0] > 0)
    classes, labels, count = values.argmax(0), np.zeros(values.shape[1:], int), 0
    for number in range(1, values.shape[0]):
        found, more = scipy.ndimage.label(classes == number)
        labels[found > 0] = found[found > 0] + count
        count += more
    return labels, count


@pytest.mark.parametrize(("classes", "workers", "tile"), [(1, 1, "16,16,16"), (3, 2, "16,32,16")])
def test_objects_are_those_of_the_whole(made, tmp_path, classes, workers, tile):
    folder, volume, _ = made
    model, out = spots(tmp_path / "spots.onnx", classes), tmp_path / "out.zarr"
    words = [model, folder / "in.zarr", out, "--labels", "-n", workers, "--tile", tile]
    said = json.loads(infer(*words, "--verify", 4, "--json").stdout)
    want, count = objects_of(whole(model, volume))
    labels = zarr.open_array(str(out))[:]
    assert count > 50 and said["objects"] == labels.max() == count
    assert same_objects(labels, want) and labels.dtype == np.uint32
    assert said["verified"]["equal"] == said["verified"]["places"] == 4
    mask = np.zeros(SHAPE, "uint8")
    mask[3:30, :, 8:40] = 1
    np.save(tmp_path / "mask.npy", mask)
    infer(*words[:2], tmp_path / "m.tif", *words[3:], "--mask", tmp_path / "mask.npy")
    want, _ = objects_of(whole(model, volume) * mask)
    assert same_objects(tifffile.imread(tmp_path / "m.tif"), want)
    assert sorted(left_behind(tmp_path)) == []


def test_numbering_goes_on_after_a_kill(made, tmp_path):
    folder, volume, _ = made
    model, out = spots(tmp_path / "spots.onnx", 1), tmp_path / "out.zarr"
    words = [model, folder / "in.zarr", out, "--labels", "-n", 2, "--tile", "16,16,16", "--json"]
    # 36 tiles, one step that joins them, and 36 tiles with the names of the volume.
    for least in (20, 40):
        run = start(*words)
        wait_for(lambda least=least, run=run: done_in(out) >= least or run.poll() is not None)
        run.kill()
        run.communicate()
        wait_for(lambda: not workers_of(out))
    if not out.exists():
        infer(*words)
    assert same_objects(zarr.open_array(str(out))[:], objects_of(whole(model, volume))[0])
    assert left_behind(tmp_path) == []


def test_the_whole_input_is_scaled_alike(made, tmp_path):
    folder, volume, _ = made
    model = folder / "plain.onnx"
    # Far from zero, and different from tile to tile.
    drift = volume * 40 + 3 * np.arange(SHAPE[0], dtype="float32")[:, None, None] + 500
    np.save(tmp_path / "drift.npy", drift)
    words = [model, tmp_path / "drift.npy", tmp_path / "m.npy", "--tile", "16,16,16"]
    said = json.loads(infer(*words, "--normalise", "mean", "--json").stdout)
    [scaling] = said["scaling"]
    assert np.isclose(scaling["shift"], drift.mean(dtype="float64"))
    assert np.isclose(scaling["scale"], drift.std(dtype="float64"))
    scaled = ((drift.astype("float64") - scaling["shift"]) / scaling["scale"]).astype("float32")
    assert np.array_equal(np.load(tmp_path / "m.npy"), whole(model, scaled))
    counts = (drift * 4).astype("uint16")
    for values, name in ((drift, "drift"), (counts, "counts")):
        np.save(tmp_path / f"{name}.npy", values)
        words = [model, tmp_path / f"{name}.npy", tmp_path / f"p-{name}.npy", "-n", 2, "--json"]
        said = json.loads(infer(*words, "--normalise", "percentiles:2,98").stdout)
        [scaling] = said["scaling"]
        low, high = np.percentile(values, [2, 98], method="inverted_cdf").astype("float64")
        assert (scaling["shift"], scaling["scale"]) == (low, high - low)
        scaled = ((values.astype("float64") - low) / (high - low)).astype("float32")
        assert np.array_equal(np.load(words[2]), whole(model, scaled))
    flat = np.full(SHAPE, 7, "float32")
    np.save(tmp_path / "flat.npy", flat)
    said = infer(model, tmp_path / "flat.npy", tmp_path / "f.npy", "--normalise", "mean", code=1)
    assert "nothing to scale by" in said.stderr and "hint: " in said.stderr


def blended(model, volume, window, overlap):
    """Windows added up with Gaussian weights, as nnU-Net does it, in double precision."""
    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = 1
    session = onnxruntime.InferenceSession(model, options, providers=["CPUExecutionProvider"])
    axis = np.exp(-0.5 * ((np.arange(window) - (window - 1) / 2) / (0.125 * window)) ** 2)
    weight = axis[:, None, None] * axis[None, :, None] * axis[None, None, :]
    step = int(window * (1 - overlap))
    begins = [
        [min(at, size - window) for at in range(0, size - window + step, step)] for size in SHAPE
    ]
    total, weights = 0, np.zeros(SHAPE)
    for corner in itertools.product(*begins):
        place = tuple(slice(at, at + window) for at in corner)
        given = session.run(None, {"x": volume[place][None, None]})[0][0]
        if np.isscalar(total):
            total = np.zeros((given.shape[0], *SHAPE))
        total[(slice(None), *place)] += weight * given
        weights[place] += weight
    return total / weights


def test_windows_are_blended_where_nothing_is_exact(made, tmp_path):
    folder, volume, _ = made
    model = unet(tmp_path / "norm.onnx", "InstanceNormalization")
    words = [model, folder / "in.zarr"]
    blend = ["--blend=0.5", "--window", "24,24,24", "--json"]
    # The same in every bit, whatever the tiles.
    first = json.loads(infer(*words, tmp_path / "a.zarr", *blend, "--verify", 3).stdout)
    infer(*words, tmp_path / "b.zarr", *blend, "-n", 2, "--tile", "16,32,16")
    one, two = (zarr.open_array(str(tmp_path / name))[:] for name in ("a.zarr", "b.zarr"))
    assert np.array_equal(one, two)
    assert first["verified"]["equal"] == first["verified"]["places"] > 0
    assert np.allclose(one, blended(model, volume, 24, 0.5), atol=1e-5)
    other = [*words, tmp_path / "c.zarr", "--blend", "--window", "24,24,24", "--tolerance", "1e-3"]
    assert "--blend" in infer(*other, code=2).stderr


def normalised(path, groups=None):
    """Two normalisations with something between them, the second one on a coarser grid."""
    net = Net()
    operator = "GroupNormalization" if groups else "InstanceNormalization"
    settings = {"num_groups": groups} if groups else {}

    def norm(x, channels):
        values = [net.random.random(channels) + 0.5, net.random.random(channels)]
        names = [f"n{len(net.weights)}-{number}" for number in range(2)]
        pairs = zip(values, names)
        net.weights += [numpy_helper.from_array(v.astype("float32"), name) for v, name in pairs]
        return net.node(operator, [x, *names], **settings)

    fine = norm(net.conv("x", 1, 4), 4)
    pair = {"kernel_shape": [2] * 3, "strides": [2] * 3}
    coarse = norm(net.conv(net.node("MaxPool", [fine], **pair), 4, 8), 8)
    up = net.node("ConvTranspose", [coarse, net.weight(8, 4, 2, 2, 2)], **pair)
    net.opset = 21 if groups else 17
    return net.save(path, net.conv(net.node("Concat", [up, fine], axis=1), 8, 2, relu=False))


@pytest.mark.parametrize("groups", [None, 2])
def test_normalisation_with_statistics_of_the_whole(made, tmp_path, groups):
    _, volume, _ = made
    model = normalised(tmp_path / "norm.onnx", groups)
    # Statistics of a tile would differ from those of the whole.
    drift = volume + np.linspace(-3, 3, SHAPE[0], dtype="float32")[:, None, None]
    np.save(tmp_path / "drift.npy", drift)
    words = [model, tmp_path / "drift.npy"]
    exact = ["--global-statistics", "--verify", 3, "--json"]
    said = json.loads(infer(*words, tmp_path / "a.npy", "-n", 1, *exact).stdout)
    infer(*words, tmp_path / "b.npy", "-n", 2, "--tile", "16,16,32", *exact)
    want, one = whole(model, drift), np.load(tmp_path / "a.npy")
    assert np.array_equal(one, np.load(tmp_path / "b.npy")) and said["verified"]["equal"] == 3
    # ONNX Runtime adds up all voxels in single precision.
    assert np.abs(one - want).max() < 1e-3 * want.std()
    infer(*words, tmp_path / "c.npy", "--inexact", "--tile", "16,16,32")
    assert np.abs(np.load(tmp_path / "c.npy") - want).max() > 0.1 * want.std()
