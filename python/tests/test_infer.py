"""``sirtaki infer`` gives the bits of the whole volume, whatever the tiles, workers and deaths.

The reference is ONNX Runtime on the whole volume, with one thread. Networks are small, so that a
run takes about a second.
"""

import contextlib
import itertools
import json
import os
import re
import signal
import subprocess
import sys
import time
from pathlib import Path

import imagecodecs
import mrcfile
import nibabel
import numpy as np
import onnx
import onnxruntime
import pytest
import scipy.ndimage
import tifffile
import zarr
from onnx import TensorProto, helper, numpy_helper
from selenium import webdriver
from selenium.webdriver.common.by import By

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


@pytest.fixture(scope="module")
def made(tmp_path_factory):
    """A volume in two formats, two networks, and what they make of it."""
    folder = tmp_path_factory.mktemp("made")
    volume = np.random.default_rng(1).standard_normal(SHAPE).astype("float32")
    np.save(folder / "in.npy", volume)
    zarr.create_array(str(folder / "in.zarr"), data=volume, chunks=(16, 16, 16))
    plain(folder / "plain.onnx")
    unet(folder / "unet.onnx")
    nets = {name: whole(folder / f"{name}.onnx", volume) for name in ("plain", "unet")}
    return folder, volume, nets


@pytest.mark.parametrize(
    ("net", "workers", "tile"),
    [("plain", 1, None), ("unet", 2, "16,32,48"), ("unet", 4, "16,16,16")],
)
def test_tiles_are_bitwise_the_whole(made, tmp_path, net, workers, tile):
    folder, _, nets = made
    out = tmp_path / "out.zarr"
    words = [
        folder / f"{net}.onnx",
        folder / "in.zarr",
        out,
        "-n",
        workers,
        "--verify",
        4,
        "--json",
    ]
    said = json.loads(infer(*words, *(["--tile", tile] if tile else [])).stdout)
    assert np.array_equal(zarr.open_array(str(out))[:], nets[net])
    assert zarr.open_array(str(out)).chunks == (1, 16, 16, 16)
    assert said["verified"]["equal"] == said["verified"]["places"] == 4
    assert (
        sum(worker["tiles"] for worker in said["workers"]) == said["tiles_done"] == said["tiles"]
    )
    assert left_behind(tmp_path) == []


def test_all_are_killed_and_the_same_command_continues(made, tmp_path):
    folder, volume, _ = made
    # Slow enough to be killed in the middle.
    model, out = plain(tmp_path / "slow.onnx", width=12, layers=3), tmp_path / "out.zarr"
    words = [model, folder / "in.zarr", out, "-n", 2, "--tile", "16,16,16", "--json"]
    for least in (3, 9):
        run = start(*words)
        wait_for(lambda least=least: done_in(out) >= least)
        run.kill()
        run.communicate()
        wait_for(lambda: not workers_of(out))
        assert not out.exists()
    before = done_in(out)
    assert 9 <= before < 36
    other = plain(tmp_path / "other.onnx", width=6)
    refused = infer(other, *words[1:], code=1).stderr
    assert "another job was begun and not completed" in refused
    assert re.search(r"model: `.*slow.onnx .*` there, `.*other.onnx", refused), refused
    said = infer(*words)
    assert f"continuing: {before} of 36 tiles are done" in said.stderr
    assert json.loads(said.stdout)["tiles_done"] == 36 - before
    assert np.array_equal(zarr.open_array(str(out))[:], whole(model, volume))
    assert left_behind(tmp_path) == []


def test_tiles_of_a_killed_worker_go_to_others(made, tmp_path):
    folder, volume, _ = made
    model, out = plain(tmp_path / "slow.onnx", width=12, layers=3), tmp_path / "out.npy"
    run = start(model, folder / "in.npy", out, "-n", 2, "--tile", "16,16,16")
    wait_for(lambda: done_in(out) >= 1)
    os.kill(workers_of(out)[0], signal.SIGKILL)
    _, said = run.communicate(timeout=PATIENCE)
    assert run.returncode == 0, said
    assert re.search(r"warning: worker \d was killed by SIGKILL .*others compute its tiles", said)
    assert np.array_equal(np.load(out), whole(model, volume))


def test_independent_processes_join(made, tmp_path):
    folder, _, nets = made
    out = tmp_path / "out.zarr"
    words = [
        folder / "unet.onnx",
        folder / "in.zarr",
        out,
        "-n",
        1,
        "--tile",
        "16,16,16",
        "--join",
    ]
    runs = [start(*words) for _ in range(3)]
    for run in runs:
        _, said = run.communicate(timeout=PATIENCE)
        assert run.returncode == 0, said
    assert np.array_equal(zarr.open_array(str(out))[:], nets["unet"])
    assert "nothing is left to do" in infer(*words).stderr
    assert left_behind(tmp_path) == []


def test_an_interrupt_is_not_an_end(made, tmp_path):
    folder, volume, _ = made
    model, out = plain(tmp_path / "slow.onnx", width=12, layers=3), tmp_path / "out.zarr"
    words = [model, folder / "in.zarr", out, "-n", 1, "--tile", "16,16,16"]
    run = start(*words)
    wait_for(lambda: done_in(out) >= 2)
    # Somebody else is told how to take part.
    worker = workers_of(out)[0]
    os.kill(worker, signal.SIGSTOP)
    assert "--join" in infer(*words, code=1).stderr
    os.kill(worker, signal.SIGCONT)
    run.send_signal(signal.SIGINT)
    _, said = run.communicate(timeout=PATIENCE)
    assert run.returncode == 130
    assert re.search(r"note: \d+ of 36 tiles are done; the same command continues", said)
    infer(*words)
    assert np.array_equal(zarr.open_array(str(out))[:], whole(model, volume))


def test_formats_and_contents(made, tmp_path):
    folder, volume, nets = made
    model, classes = folder / "unet.onnx", nets["unet"].argmax(0)
    infer(model, folder / "in.npy", tmp_path / "a.tif", "--output", "argmax")
    assert np.array_equal(tifffile.imread(tmp_path / "a.tif"), classes)
    single = plain(tmp_path / "single.onnx", out=1)
    infer(single, folder / "in.npy", tmp_path / "a.mrc")
    assert np.array_equal(mrcfile.read(tmp_path / "a.mrc"), whole(single, volume)[0])
    refused = infer(model, folder / "in.npy", tmp_path / "b.mrc", "--output", "argmax", code=1)
    assert "MRC has no voxels of uint8" in refused.stderr and left_behind(tmp_path) == []
    scaled = nibabel.Nifti1Image(volume.T, np.diag([0.5, 0.6, 0.7, 1.0]))
    nibabel.save(scaled, tmp_path / "in.nii")
    infer(model, tmp_path / "in.nii", tmp_path / "a.nii", "--output", "argmax")
    written = nibabel.load(tmp_path / "a.nii")
    assert np.array_equal(np.asarray(written.dataobj).T, classes)
    assert np.allclose(written.header.get_zooms(), (0.5, 0.6, 0.7))
    volume.tofile(tmp_path / "in.raw")
    raw = ["--shape", ",".join(map(str, SHAPE)), "--dtype", "float32"]
    infer(model, tmp_path / "in.raw", tmp_path / "p.npy", *raw, "--output", "probabilities")
    shares = np.exp(nets["unet"] - nets["unet"].max(0))
    assert np.allclose(np.load(tmp_path / "p.npy"), shares / shares.sum(0), atol=1e-6)


def test_the_examples_of_the_documentation_run(made, tmp_path):
    folder, volume, _ = made
    zarr.create_array(str(tmp_path / "in.zarr"), data=volume, chunks=(16, 16, 16))
    (tmp_path / "net.onnx").write_bytes((folder / "plain.onnx").read_bytes())
    page = (Path(__file__).parents[2] / "docs/volumes.md").read_text()
    examples = re.findall(r"^(sirtaki infer [^#\n]*)", page, re.MULTILINE)
    # The other hosts of an example are not there.
    examples = [example for example in examples if " -H " not in example]
    assert len(examples) >= 3
    for example in examples:
        words = [SIRTAKI, *example.split()[1:]]
        done = subprocess.run(
            words, env=environment(), cwd=tmp_path, capture_output=True, text=True, check=False
        )
        assert done.returncode == 0, (example, done.stderr)
    assert zarr.open_array(str(tmp_path / "out.zarr")).shape == (2, *SHAPE)


def test_a_browser_shows_the_page(made, tmp_path):
    folder, _, _ = made
    page = tmp_path / "page.html"
    words = [folder / "unet.onnx", folder / "in.zarr", tmp_path / "out.zarr", "--report", page]
    infer(*words, "-n", 2, "--output", "argmax", "--verify", 2)
    options = webdriver.ChromeOptions()
    flags = ["--headless", "--no-sandbox", "--disable-gpu", "--disable-background-networking"]
    for flag in [*flags, "--window-size=1000,1200", f"--user-data-dir={tmp_path / 'browser'}"]:
        options.add_argument(flag)
    options.binary_location = "/usr/bin/chromium"
    browser = webdriver.Chrome(options, webdriver.ChromeService("/usr/bin/chromedriver"))
    try:
        browser.get(page.as_uri())
        titles = [title.text for title in browser.find_elements(By.CSS_SELECTOR, "h1, h3")]
        slices = [f"{what}, across axis {axis}" for axis in "zy" for what in ("Input", "Output")]
        assert titles == ["out.zarr by unet.onnx", *slices, "Time of the workers"]
        text = browser.find_element(By.TAG_NAME, "body").text
        assert "places computed again are equal in every bit" in text
        wide = "return document.documentElement.scrollWidth > document.documentElement.clientWidth"
        assert not browser.execute_script(wide)
        for image in browser.find_elements(By.CSS_SELECTOR, "figure svg:has(image)"):
            shown = imagecodecs.png_decode(image.screenshot_as_png)[..., 0]
            assert shown.min() < 50 and shown.max() > 200, "the slice is a picture"
    finally:
        browser.quit()


def test_regions_and_masks(made, tmp_path):
    folder, _, nets = made
    words = [folder / "plain.onnx", folder / "in.zarr"]
    infer(*words, tmp_path / "r.zarr", "--roi", "10:30,:,5:", "--verify", 3)
    want = np.zeros_like(nets["plain"])
    want[:, 10:30, :, 5:] = nets["plain"][:, 10:30, :, 5:]
    assert np.array_equal(zarr.open_array(str(tmp_path / "r.zarr"))[:], want)
    mask = np.zeros(SHAPE, "uint8")
    mask[3:12, 20:30, 8:40] = 1
    np.save(tmp_path / "mask.npy", mask)
    tiles = ["--tile", "16,16,16", "--json"]
    said = infer(*words, tmp_path / "m.npy", "--mask", tmp_path / "mask.npy", *tiles)
    assert json.loads(said.stdout)["tiles"] == 3
    assert np.array_equal(np.load(tmp_path / "m.npy"), nets["plain"] * mask)


def test_channels_planes_and_fixed_inputs(made, tmp_path):
    folder, volume, nets = made
    several = np.stack([volume, -volume, volume * 2])
    np.save(tmp_path / "several.npy", several)
    model = plain(tmp_path / "two.onnx", channels=2)
    infer(model, tmp_path / "several.npy", tmp_path / "c.npy", "--channels", "2,0")
    assert np.array_equal(np.load(tmp_path / "c.npy"), whole(model, several[[2, 0]]))
    np.save(tmp_path / "plane.npy", volume[0])
    model = plain(tmp_path / "plane.onnx", axes=2)
    infer(model, tmp_path / "plane.npy", tmp_path / "plane_out.npy", "--tile", "32,32")
    assert np.array_equal(np.load(tmp_path / "plane_out.npy"), whole(model, volume[0]))
    model = plain(tmp_path / "fixed.onnx", space=[40, 40, 40])
    infer(model, folder / "in.npy", tmp_path / "f.npy")
    assert np.array_equal(np.load(tmp_path / "f.npy"), nets["plain"])


def test_tolerance_and_plan(made, tmp_path):
    folder, volume, _ = made
    model = plain(tmp_path / "deep.onnx", layers=6)
    words = [model, folder / "in.npy", tmp_path / "t.npy"]
    plan = json.loads(infer(*words, "-n", 2, "--dry-run", "--json").stdout)
    assert [halo["before"] for halo in plan["halo"]] == [6] * 3
    assert plan["memory_per_worker"] > 0 and plan["seconds"] > 0 and plan["workers"] == 2
    assert not (tmp_path / "t.npy").exists() and left_behind(tmp_path) == []
    said = json.loads(infer(*words, "--tolerance", "0.2", "--tile", "32,32,32", "--json").stdout)
    assert all(halo["before"] < 6 for halo in said["halo"]) and max(said["error"]) <= 0.2
    exact = whole(model, volume)
    assert 0 < np.abs(np.load(tmp_path / "t.npy") - exact).max() < 2 * exact.std()


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


def test_what_cannot_be_done_is_said(made, tmp_path):
    folder, volume, _ = made
    model, out = folder / "plain.onnx", tmp_path / "out.npy"

    def refusal(*words, **variables):
        said = infer(*words, code=1, **variables).stderr
        assert said.startswith("error: ") and "hint: " in said, said
        assert not out.exists() and left_behind(tmp_path) == []
        return said

    said = refusal(model, folder / "in.npy", out, SIRTAKI_ONNXRUNTIME="/nowhere/libonnxruntime.so")
    assert "pip install onnxruntime" in said
    np.save(tmp_path / "plane.npy", volume[0])
    assert "(y, x) has 2 axes of space, and the network takes 3" in refusal(
        model, tmp_path / "plane.npy", out
    )
    np.save(tmp_path / "rgb.npy", np.stack([volume] * 3))
    assert "has 3 channels, of which 3 are used, and the network takes 1" in refusal(
        model, tmp_path / "rgb.npy", out
    )
    said = refusal(unet(tmp_path / "norm.onnx", "InstanceNormalization"), folder / "in.npy", out)
    assert "--inexact" in said and "--blend" in said
    assert "is not inside the output" in refusal(
        model, folder / "in.npy", out, "--roi", "0:99,:,:"
    )
    assert "needs" in refusal(model, folder / "in.npy", out, "--memory", "1M")
    (tmp_path / "there.npy").write_bytes(b"mine")
    infer(model, folder / "in.npy", tmp_path / "there.npy", code=1)
    assert (tmp_path / "there.npy").read_bytes() == b"mine" and left_behind(tmp_path) == []


def test_damaged_input_is_named(made, tmp_path):
    folder, volume, _ = made
    model, out = folder / "plain.onnx", tmp_path / "out.npy"
    odd = volume.copy()
    odd[7, 8, 9] = np.nan
    np.save(tmp_path / "odd.npy", odd)
    said = infer(model, tmp_path / "odd.npy", out, "-n", 2, code=1).stderr
    assert re.search(r"error: tile \d+, .*odd.npy: voxel \[7, 8, 9\] is not a number", said), said
    assert said.count("error:") == 1 and "--allow-nan" in said and not out.exists()
    infer(model, tmp_path / "odd.npy", tmp_path / "nan.npy", "--allow-nan")
    assert np.isnan(np.load(tmp_path / "nan.npy")[:, 7, 8, 9]).all()
    damaged = tmp_path / "in.zarr"
    zarr.create_array(str(damaged), data=volume, chunks=(16, 16, 16))
    chunk = damaged / "c" / "1" / "1" / "1"
    chunk.write_bytes(chunk.read_bytes()[:100])
    said = infer(model, damaged, tmp_path / "d.npy", code=1).stderr
    assert "c/1/1/1: chunk [1, 1, 1]" in said and "hint: " in said


def test_a_full_disk_loses_nothing(made, tmp_path):
    folder, _, nets = made
    small = tmp_path / "small"
    small.mkdir()
    words = [folder / "plain.onnx", folder / "in.zarr", small / "out.npy", "--tile", "16,16,16"]
    subprocess.run(["mount", "-t", "tmpfs", "-o", "size=300k", "none", small], check=True)
    try:
        said = infer(*words, "-n", 2, code=1).stderr
        assert "No space left on device" in said and "error: " in said and not words[2].exists()
        subprocess.run(["mount", "-o", "remount,size=4m", small], check=True)
        infer(*words, "-n", 2)
        assert np.array_equal(np.load(words[2]), nets["plain"])
        assert left_behind(small) == []
    finally:
        subprocess.run(["umount", small], check=True)


@contextlib.contextmanager
def limited(megabytes):
    """A control group with so much memory: the file that takes processes in."""
    for root, limit in (
        ("/sys/fs/cgroup/memory", "memory.limit_in_bytes"),
        ("/sys/fs/cgroup", "memory.max"),
    ):
        group = Path(root) / f"sirtaki-{os.getpid()}"
        with contextlib.suppress(OSError):
            group.mkdir()
            try:
                (group / limit).write_text(str(megabytes << 20))
            except OSError:
                group.rmdir()
                continue
            break
    else:
        pytest.skip("this machine lets nobody limit memory by control groups")
    try:
        yield group / "cgroup.procs"
    finally:
        wait_for(lambda: not (group / "cgroup.procs").read_text())
        group.rmdir()


def test_workers_keep_to_a_limit_of_memory(made, tmp_path):
    _, volume, _ = made
    large = np.tile(volume, (4, 3, 3))
    np.save(tmp_path / "large.npy", large)
    model = plain(tmp_path / "wide.onnx", width=16, layers=2)
    # The whole at once would need 16 channels of it, twice; two workers share what there is.
    assert large.size * 4 * 32 > 400 << 20
    words = command(model, tmp_path / "large.npy", tmp_path / "out.npy", "-n", 2, "--json")
    with limited(400) as group:
        done = subprocess.run(
            ["sh", "-c", 'echo $$ > "$0" && exec "$@"', group, *words],
            env=environment(),
            capture_output=True,
            text=True,
            timeout=PATIENCE,
            check=False,
        )
    # The kernel would have killed them.
    assert done.returncode == 0, done.stderr
    said = json.loads(done.stdout)
    assert "killed" not in done.stderr
    assert sum(worker["memory"] for worker in said["workers"]) < 400 << 20
