"""``sirtaki.infer`` with functions of NumPy and modules of PyTorch, alone and on ranks."""

import os
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
import torch

import sirtaki

SHAPE = (24, 30, 28)
SIRTAKI = os.environ.get("SIRTAKI_COMMAND", str(Path(sys.executable).parent / "sirtaki"))

PROGRAM = """
import sys, torch, sirtaki
torch.set_num_threads(1)
torch.backends.mkldnn.enabled = False
sys.path.insert(0, sys.argv[1])
from test_infer_python import network
done = sirtaki.infer(network(), sys.argv[2], sys.argv[3], halo=4, stride=2, tile=[8, 8, 8])
print("tiles", done["tiles"])
"""


def network():
    torch.manual_seed(0)
    return torch.nn.Sequential(
        torch.nn.Conv3d(1, 4, 3, padding=1),
        torch.nn.ReLU(),
        torch.nn.MaxPool3d(2),
        torch.nn.Conv3d(4, 4, 3, padding=1),
        torch.nn.ConvTranspose3d(4, 2, 2, 2),
    ).eval()


@pytest.fixture
def volume(tmp_path):
    values = np.random.default_rng(3).standard_normal(SHAPE).astype("float32")
    np.save(tmp_path / "in.npy", values)
    return tmp_path, values


@pytest.fixture
def one_way_to_compute():
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    with torch.backends.mkldnn.flags(enabled=False):
        yield
    torch.set_num_threads(threads)


def whole(values):
    with torch.no_grad():
        return network()(torch.from_numpy(values)[None, None])[0].numpy()


@pytest.mark.usefixtures("one_way_to_compute")
def test_a_module_of_pytorch_is_bitwise_the_whole(volume):
    folder, values = volume
    done = sirtaki.infer(
        network(), folder / "in.npy", folder / "out.npy", halo=4, stride=2, tile=[8, 16, 32]
    )
    assert done["tiles"] == 3 * 2
    assert np.array_equal(np.load(folder / "out.npy"), whole(values))


@pytest.mark.usefixtures("one_way_to_compute")
def test_ranks_share_the_work(volume):
    folder, values = volume
    command = [SIRTAKI, "run", "-n", "2", "--oversubscribe", "--", sys.executable, "-c", PROGRAM]
    words = [*command, str(Path(__file__).parent), str(folder / "in.npy"), str(folder / "out.npy")]
    done = subprocess.run(words, capture_output=True, text=True, timeout=300, check=False)
    assert done.returncode == 0, done.stderr
    tiles = [int(line.split()[-1]) for line in done.stdout.splitlines() if "tiles" in line]
    assert len(tiles) == 2 and sum(tiles) == 3 * 4 * 4
    assert np.array_equal(np.load(folder / "out.npy"), whole(values))


def test_a_halo_that_is_too_small_is_refused(volume):
    folder, _ = volume
    with pytest.raises(sirtaki.Error, match="differ from the whole by") as refused:
        sirtaki.infer(network(), folder / "in.npy", folder / "out.npy", halo=1, stride=2)
    assert "hint: give a larger halo" in str(refused.value)
    assert sorted(path.name for path in folder.iterdir()) == ["in.npy"]


def test_what_the_function_raises_arrives(volume):
    folder, _ = volume

    def fails(array):
        raise KeyError("weights")

    with pytest.raises(KeyError, match="weights"):
        sirtaki.infer(fails, folder / "in.npy", folder / "out.npy", halo=0)
    with pytest.raises(ValueError, match="the model made"):
        sirtaki.infer(lambda array: array[0], folder / "in.npy", folder / "out.npy", halo=0)
    with pytest.raises(sirtaki.Error, match="has the size of its input"):
        sirtaki.infer(lambda array: array[..., 1:], folder / "in.npy", folder / "o.npy", halo=0)


def test_classes_of_a_function_of_numpy(volume):
    folder, values = volume

    def sign(array):
        return np.concatenate([array, -array], axis=1)

    sirtaki.infer(sign, folder / "in.npy", folder / "out.npy", halo=0, output="argmax")
    assert np.array_equal(np.load(folder / "out.npy"), (values < 0).astype("uint8"))


def test_a_tolerance_makes_halos_smaller(volume):
    folder, _ = volume

    def blur(x):
        for _ in range(6):
            padded = np.pad(x, ((0, 0), (0, 0), (1, 1), (0, 0), (0, 0)))
            x = (padded[:, :, :-2] + padded[:, :, 1:-1] + padded[:, :, 2:]) / 3
        return x

    given = {"halo": [6, 0, 0], "tile": [8, 30, 28]}
    exact = sirtaki.infer(blur, folder / "in.npy", folder / "exact.npy", **given)
    assert exact["halo"] == [6, 0, 0] and exact["error"] is None
    done = sirtaki.infer(blur, folder / "in.npy", folder / "out.npy", tolerance=0.05, **given)
    assert 0 < done["halo"][0] < 6 and max(done["error"]) <= 0.05
    wanted = np.load(folder / "exact.npy")
    error = np.abs(np.load(folder / "out.npy") - wanted).max() / wanted.std()
    assert 0 < error < 0.1

    def fails(x):
        if x.shape[2] != 4:
            raise KeyError("weights")
        return x

    with pytest.raises(KeyError, match="weights"):
        sirtaki.infer(fails, folder / "in.npy", folder / "f.npy", tolerance=0.05, **given)
