"""``sirtaki infer`` and ``sirtaki.infer`` read HDF5, with the library that h5py has."""

import h5py
import numpy as np
import pytest
from infer_command import infer, left_behind, make

import sirtaki


@pytest.fixture
def made(tmp_path):
    folder, volume, nets = make(tmp_path)
    with h5py.File(folder / "in.h5", "w") as file:
        data = file.create_dataset("entry/data", data=volume.astype(">f4"), chunks=(8, 16, 16))
        data.attrs["element_size_um"] = [2.0, 1.0, 1.0]
    return folder, volume, nets


def test_a_dataset_is_computed_as_the_array(made):
    folder, volume, nets = made
    model, source, out = folder / "unet.onnx", folder / "in.h5", folder / "out.npy"
    done = infer(model, f"{source}:/entry/data", out, "-n", 2, "--tile", "16,32,48")
    assert "the only volume" not in done.stderr
    np.testing.assert_array_equal(np.load(out), nets["unet"])
    mask = np.zeros(volume.shape, bool)
    mask[:16] = True
    with h5py.File(folder / "mask.nxs", "w") as file:
        file["mask"] = mask
    words = [model, source, out, "--mask", folder / "mask.nxs", "--tile", "16,64,64", "--replace"]
    said = infer(*words, "-n", 1).stderr
    assert f"note: reading {source}:/entry/data, the only volume in it" in said
    assert f"note: reading {folder}/mask.nxs:/mask, the only volume in it" in said
    np.testing.assert_array_equal(np.load(out), np.where(mask, nets["unet"], 0))
    assert left_behind(folder) == []


def test_what_cannot_be_done_with_hdf5_is_said(made):
    folder, _, _ = made
    model, source = folder / "plain.onnx", folder / "in.h5"

    def refusal(*words, **variables):
        said = infer(model, *words, code=1, **variables).stderr
        assert said.startswith("error: ") and "hint: " in said, said
        assert left_behind(folder) == []
        return said

    assert "read and not written" in refusal(source, folder / "out.h5")
    assert "/entry/data (40" in refusal(f"{source}:/data", folder / "out.npy")
    said = refusal(source, folder / "out.npy", SIRTAKI_HDF5="/nowhere/libhdf5.so")
    assert "libhdf5 cannot be loaded from /nowhere/libhdf5.so" in said
    assert "pip install h5py" in said


def test_python_finds_the_library_of_its_own_h5py(made):
    folder, volume, _ = made
    sirtaki.infer(lambda tile: 2 * tile, f"{folder}/in.h5", f"{folder}/out.npy", halo=0)
    np.testing.assert_array_equal(np.load(folder / "out.npy").reshape(volume.shape), 2 * volume)
