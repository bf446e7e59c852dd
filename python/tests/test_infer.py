"""``sirtaki infer`` gives the bits of the whole volume, whatever the tiles, workers and deaths.

The reference is ONNX Runtime on the whole volume, with one thread. Networks are small, so that a
run takes about a second.
"""

import contextlib
import json
import os
import re
import signal
import subprocess
from pathlib import Path

import h5py
import imagecodecs
import mrcfile
import nibabel
import numpy as np
import pytest
import tifffile
import zarr
from infer_command import (
    PATIENCE,
    SHAPE,
    SIRTAKI,
    command,
    done_in,
    environment,
    infer,
    left_behind,
    make,
    plain,
    start,
    unet,
    wait_for,
    whole,
    workers_of,
)
from selenium import webdriver
from selenium.webdriver.common.by import By


@pytest.fixture(scope="module")
def made(tmp_path_factory):
    return make(tmp_path_factory.mktemp("made"))


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
    for file, dataset in {"scan.h5": "entry/data", "scan.nxs": "scan", "mask.h5": "mask"}.items():
        with h5py.File(tmp_path / file, "w") as hdf5:
            hdf5[dataset] = np.ones(SHAPE, np.uint8) if dataset == "mask" else volume
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
    whole, *others = (
        zarr.open_array(str(tmp_path / name))[:]
        for name in ("out.zarr", "scan.zarr", "inside.zarr")
    )
    assert whole.shape == (2, *SHAPE)
    assert all((other == whole).all() for other in others)


def test_a_browser_shows_the_page(made, tmp_path):
    folder, _, _ = made
    page = tmp_path / "page.html"
    words = [folder / "unet.onnx", folder / "in.zarr", tmp_path / "out.zarr", "--report", page]
    tiles = ["--tile", "16,16,16"]
    done = infer(*words, "-n", 2, "--output", "argmax", "--verify", 2, *tiles, "--json").stdout
    done = json.loads(done)
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
        pictures = ["Time of the workers", "Who computed which tile"]
        assert titles == ["out.zarr by unet.onnx", *slices, *pictures]
        # The page's script makes its own tooltips.
        tiles = browser.find_elements(By.CSS_SELECTOR, ".bar[data-tip]")
        tiles = [tile for tile in tiles if "/" in tile.get_attribute("data-tip")]
        assert len(tiles) == done["tiles"]
        heads = [head.text for head in browser.find_elements(By.TAG_NAME, "th")]
        assert {"computing", "reading", "writing"} <= set(heads), heads
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
    assert "pip install onnxruntime-gpu" in refusal(model, folder / "in.npy", out, "--gpus", 1)
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
