"""From pairs of volumes to a network in an ONNX file, and from that to a classified volume.

ONNX Runtime on the whole volume is the reference, and Burn, which trained the network, agrees.
"""

import os
import subprocess
from pathlib import Path

import numpy as np
import onnx
import onnxruntime
import pytest
import scipy.ndimage
from infer_command import PATIENCE, SIRTAKI, environment, infer

ROOT = Path(__file__).parents[2]
VOLUME = os.environ.get("SIRTAKI_TEST_VOLUME", str(ROOT / "target/debug/examples/volume"))


def run(*words, cwd):
    done = subprocess.run(
        [SIRTAKI, *map(str, words)],
        env=environment(),
        cwd=cwd,
        capture_output=True,
        text=True,
        timeout=PATIENCE,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    return done.stdout


def scores(model, volume):
    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = 1
    session = onnxruntime.InferenceSession(model, options, providers=["CPUExecutionProvider"])
    return session.run(None, {"volume": volume[None, None].astype("float32")})[0][0]


def blobs(shape, seed):
    """A noisy volume, and where it is bright before the noise."""
    random = np.random.default_rng(seed)
    smooth = scipy.ndimage.gaussian_filter(random.standard_normal(shape), 2)
    labels = smooth > smooth.std() * 0.7
    noise = random.standard_normal(shape) * 0.8
    return (1000 + 200 * (labels + noise)).astype("float32"), labels.astype("uint8")


@pytest.mark.parametrize("shape", [(24, 40, 26), (70, 90)])
def test_a_network_is_trained_exported_and_applied(tmp_path, shape):
    for name in ("a", "b"):
        volume, labels = blobs(shape, len(name) + ord(name))
        for folder, values in (("inputs", volume), ("labels", labels)):
            (tmp_path / "pairs" / folder).mkdir(parents=True, exist_ok=True)
            np.save(tmp_path / "pairs" / folder / f"{name}.npy", values)
    words = (
        "train --model msd --data pairs --depth 5 --patch 12 -n 2 --epochs 6 --lr 0.01 --export"
    )
    assert "net.onnx" in run(*words.split(), "net.onnx", cwd=tmp_path)
    onnx.checker.check_model(onnx.load(tmp_path / "net.onnx"), full_check=True)
    volume, labels = blobs(shape, 7)
    np.save(tmp_path / "in.npy", volume)
    out = tmp_path / "out.npy"
    words = [tmp_path / "net.onnx", tmp_path / "in.npy", out, "--output", "argmax", "--verify", 2]
    infer(*words, "-n", 2, "--tile", ",".join(["20"] * len(shape)))
    whole = scores(tmp_path / "net.onnx", volume)
    assert np.array_equal(np.load(out), whole.argmax(0))
    right, thresholded = (np.mean(guess == labels) for guess in (np.load(out), volume > 1100))
    assert right > thresholded + 0.02, "it sees more than the voxel itself"


def test_onnx_runtime_computes_what_burn_computes(tmp_path):
    volume = np.random.default_rng(3).random((40, 37, 45), dtype="float32")
    np.save(tmp_path / "in.npy", volume)
    words = ["run", "-n", 2, "--", VOLUME, "in.npy", "out.npy", "net.onnx"]
    assert "21, 21, 21" in run(*words, cwd=tmp_path)
    burn, whole = np.load(tmp_path / "out.npy"), scores(tmp_path / "net.onnx", volume)
    assert burn.shape == whole.shape == (2, 40, 37, 45)
    assert whole.std() > 0.05
    assert np.abs(burn - whole).max() < 1e-4 * whole.std()
