"""HDF5 files as h5py writes them are read, by the library that comes with h5py.

The program under test is the example ``convert`` of the crate ``sirtaki-volume``.
"""

import os
import subprocess
from pathlib import Path

import h5py
import numpy as np
import pytest
import zarr

ROOT = Path(__file__).parents[2]
CONVERT = os.environ.get("SIRTAKI_TEST_CONVERT", str(ROOT / "target/debug/examples/convert"))
LIBRARIES = Path(h5py.__file__).parents[1] / "h5py.libs"
# Where h5py was not installed from a wheel, it uses the system's library, which is found as well.
FOUND = {"SIRTAKI_HDF5": str(LIBRARIES)} if LIBRARIES.is_dir() else {}
DTYPES = ["uint8", "uint16", "uint32", "uint64", "int8", "int16", "int32", "int64"]


def convert(source, target, **variables):
    return subprocess.run(
        [CONVERT, source, target],
        capture_output=True,
        text=True,
        timeout=300,
        check=False,
        env={**os.environ, **FOUND, **variables},
    )


def read(source, folder):
    """What Sirtaki reads from a file."""
    done = convert(source, folder / "read.npy")
    assert done.returncode == 0, done.stderr
    found = np.load(folder / "read.npy")
    (folder / "read.npy").unlink()
    return found


def refusal(source, folder, target="refused.npy", **variables):
    done = convert(source, folder / target, **variables)
    assert done.returncode == 1
    assert "panicked" not in done.stderr
    # The library prints nothing itself.
    assert "HDF5-DIAG" not in done.stderr
    assert [line.split()[0] for line in done.stderr.splitlines()] == ["error:", "hint:"]
    assert not (folder / target).exists()
    return done.stderr


def voxels(shape=(20, 33, 41), dtype="uint16"):
    random = np.random.default_rng(7)
    return (random.integers(0, 250, shape) - (100 if np.dtype(dtype).kind in "if" else 0)).astype(
        dtype
    )


def same(found, expected):
    assert found.dtype == expected.dtype
    assert found.shape == expected.shape
    assert found.tobytes() == np.ascontiguousarray(expected).tobytes()


def times(*sizes):
    """Sizes as errors show them."""
    return " \N{MULTIPLICATION SIGN} ".join(map(str, sizes))


def write(path, **datasets):
    with h5py.File(path, "w") as file:
        for name, values in datasets.items():
            file[name] = values
    return path


@pytest.mark.parametrize("order", ["<", ">"])
@pytest.mark.parametrize("dtype", [*DTYPES, "float16", "float32", "float64", "bool"])
def test_every_type_is_read_in_both_orders(tmp_path, dtype, order):
    expected = voxels(dtype=dtype)
    stored = expected.astype(expected.dtype.newbyteorder(order))
    write(tmp_path / "a.h5", data=stored)
    same(read(tmp_path / "a.h5", tmp_path), expected)


STORED = {
    "contiguous": {},
    "chunks": {"chunks": (8, 16, 16)},
    "gzip": {"chunks": (8, 16, 16), "compression": "gzip", "compression_opts": 7},
    "shuffle": {"chunks": (1, 33, 41), "compression": "gzip", "shuffle": True},
    "checksum": {"chunks": (8, 16, 16), "fletcher32": True},
    "grows": {"chunks": (8, 16, 16), "maxshape": (None, 33, 41)},
    "large": {"chunks": (64, 64, 64), "maxshape": (None, None, None)},
}


@pytest.mark.parametrize("latest", [False, True])
@pytest.mark.parametrize("kind", STORED)
def test_every_kind_of_storage_is_read(tmp_path, kind, latest):
    expected = voxels()
    with h5py.File(tmp_path / "a.h5", "w", libver="latest" if latest else "earliest") as file:
        file.create_dataset("data", data=expected, **STORED[kind])
    same(read(tmp_path / "a.h5", tmp_path), expected)


def test_regions_of_the_output_are_read(tmp_path):
    """Chunks of the output that are not those of the input."""
    expected = voxels()
    with h5py.File(tmp_path / "a.h5", "w") as file:
        file.create_dataset("data", data=expected, chunks=(8, 16, 16), compression="gzip")
    done = subprocess.run(
        [CONVERT, tmp_path / "a.h5", tmp_path / "a.zarr", "chunk=5,7,9"],
        env={**os.environ, **FOUND},
        check=True,
        capture_output=True,
    )
    assert done.stderr.decode().startswith("note: reading ")
    same(zarr.open(tmp_path / "a.zarr", mode="r")[:], expected)


def test_chunks_and_voxel_size_are_kept(tmp_path):
    expected = voxels((2, 20, 33, 41), "uint8")
    with h5py.File(tmp_path / "a.h5", "w") as file:
        data = file.create_dataset(
            "data", data=expected, chunks=(1, 8, 16, 16), compression="gzip"
        )
        data.attrs["element_size_um"] = np.array([2.0, 0.5, 0.25], ">f4")
    done = convert(tmp_path / "a.h5", tmp_path / "a.zarr")
    assert done.returncode == 0, done.stderr
    group = zarr.open_group(tmp_path / "a.zarr", mode="r")
    image = group.attrs["ome"]["multiscales"][0]
    assert [axis["name"] for axis in image["axes"]] == ["c", "z", "y", "x"]
    assert [axis.get("unit") for axis in image["axes"]] == [None, *["micrometer"] * 3]
    level = image["datasets"][0]
    assert level["coordinateTransformations"][0]["scale"] == [1, 2, 0.5, 0.25]
    assert group[level["path"]].chunks == (1, 8, 16, 16)
    same(group[level["path"]][:], expected)


@pytest.mark.parametrize("size", ["no number", [1.0, -2.0, 3.0], [1.0] * 7, [[1.0] * 9] * 9])
def test_a_voxel_size_that_makes_no_sense_is_not_used(tmp_path, size):
    expected = voxels()
    with h5py.File(tmp_path / "a.h5", "w") as file:
        file.create_dataset("data", data=expected).attrs["element_size_um"] = size
    assert convert(tmp_path / "a.h5", tmp_path / "a.zarr").returncode == 0
    same(zarr.open_array(tmp_path / "a.zarr", mode="r")[:], expected)


@pytest.mark.parametrize("name", ["a.h5", "a.hdf5", "a.HDF", "a.nxs", "scan 12:30 µ"])
def test_a_dataset_is_named_behind_the_file(tmp_path, name):
    first, second = voxels(), voxels(dtype="float32")
    with h5py.File(tmp_path / name, "w") as file:
        file["entry/data"] = first
        file["entry/other: 1"] = second
    for dataset, expected in [
        ("/entry/data", first),
        ("entry/data", first),
        ("/entry/other: 1", second),
    ]:
        same(read(f"{tmp_path / name}:{dataset}", tmp_path), expected)


def test_the_only_volume_is_found(tmp_path):
    expected = voxels()
    with h5py.File(tmp_path / "a.nxs", "w") as file:
        file["entry/instrument/detector/data"] = expected
        file["entry/instrument/detector/exposures"] = np.ones(20)
        file["entry/instrument/name"] = "P05"
        file["entry/sample/positions"] = np.zeros(3, [("x", "f4"), ("y", "f4")])
        file["entry/empty"] = np.zeros((0, 3, 4))
        # Other names of the same, a name of nothing, and a group inside of itself.
        file["entry/data/data"] = file["entry/instrument/detector/data"]
        file["soft"] = h5py.SoftLink("/entry/instrument/detector/data")
        file["nowhere"] = h5py.SoftLink("/gone")
        file["elsewhere"] = h5py.ExternalLink("gone.h5", "/data")
        file["entry/entry"] = file["entry"]
    done = convert(tmp_path / "a.nxs", tmp_path / "a.npy")
    assert done.returncode == 0, done.stderr
    assert done.stderr == f"note: reading {tmp_path}/a.nxs:/soft, the only volume in it\n"
    same(np.load(tmp_path / "a.npy"), expected)
    same(read(f"{tmp_path}/a.nxs:/entry/instrument", tmp_path), expected)
    same(read(f"{tmp_path}/a.nxs:/soft", tmp_path), expected)
    same(read(f"{tmp_path}/a.nxs:/", tmp_path), expected)


def test_several_volumes_are_listed(tmp_path):
    path = write(tmp_path / "a.h5", raw=voxels(), mask=voxels((5, 6), "bool"), one=np.ones(3))
    said = refusal(path, tmp_path)
    assert f"error: {path}: there are 2 datasets that could be meant: " in said
    assert f"/mask ({times(5, 6)} bool), /raw ({times(20, 33, 41)} uint16)" in said
    assert f"hint: name one of them, as in `{path}:/mask`" in said
    many = write(tmp_path / "b.h5", **{f"g/{number:02}": np.ones((2, 2)) for number in range(30)})
    assert "there are 30 datasets" in (said := refusal(many, tmp_path))
    assert f"/g/11 ({times(2, 2)} float64), and 18 more" in said
    said = refusal(f"{many}:/g", tmp_path)
    assert f"{many}:/g: there are 30 datasets" in said
    nothing = write(tmp_path / "c.h5", one=np.ones(3))
    assert "no dataset of numbers with 2 to 4 axes" in refusal(nothing, tmp_path)


def test_what_is_not_there_is_named(tmp_path):
    path = write(tmp_path / "a.h5", **{"entry/data": voxels()})
    said = refusal(f"{path}:/entry/dta", tmp_path)
    assert f"{path}:/entry/dta: this cannot be opened: " in said
    assert f"hint: the volumes in {path} are /entry/data ({times(20, 33, 41)} uint16)" in said
    missing = subprocess.run(
        [CONVERT, f"{tmp_path}/b.h5:/data", tmp_path / "b.npy"],
        capture_output=True,
        text=True,
        check=False,
    )
    assert f"error: {tmp_path}/b.h5: No such file" in missing.stderr
    np.save(tmp_path / "a.npy", voxels())
    said = refusal(f"{tmp_path}/a.npy:/data", tmp_path)
    assert "a.npy: this is npy and has no datasets, so there is no `/data` in it" in said


@pytest.mark.parametrize(
    ("values", "name"),
    [
        (np.array([[b"one", b"two"]]), "string"),
        (np.array([["one", "two"]], h5py.string_dtype()), "string"),
        (np.zeros((3, 4), [("x", "f4"), ("y", "f4")]), "compound"),
        (np.zeros((3, 4), "complex64"), "compound"),
        (np.zeros((3, 4), h5py.enum_dtype({"water": 1, "bone": 2}, "i1")), "enum"),
        (np.zeros((3, 4), np.longdouble), "float of 16 bytes"),
    ],
)
def test_what_is_no_number_is_refused(tmp_path, values, name):
    path = write(tmp_path / "a.h5", data=values)
    said = refusal(f"{path}:data", tmp_path)
    assert f'{path}:/data: voxels of type "{name}" cannot be used' in said
    assert "hint: convert them to one of bool, int8" in said
    assert "no dataset of numbers" in refusal(path, tmp_path)


def test_integers_with_fewer_bits_are_read(tmp_path):
    """Twelve bits in two bytes, as cameras give them."""
    expected = voxels(dtype="int16")
    with h5py.File(tmp_path / "a.h5", "w") as file:
        kind = h5py.h5t.STD_I16LE.copy()
        kind.set_precision(12)
        kind.set_offset(4)
        space = h5py.h5s.create_simple(expected.shape)
        stored = h5py.h5d.create(file.id, b"data", kind, space)
        stored.write(h5py.h5s.ALL, h5py.h5s.ALL, expected)
    same(read(tmp_path / "a.h5", tmp_path), expected)


def test_virtual_datasets_and_other_files_are_followed(tmp_path):
    expected = voxels()
    layout = h5py.VirtualLayout(expected.shape, expected.dtype)
    for number in range(2):
        part = expected[10 * number : 10 * number + 10]
        write(tmp_path / f"part{number}.h5", data=part)
        layout[10 * number : 10 * number + 10] = h5py.VirtualSource(
            f"part{number}.h5", "data", part.shape
        )
    with h5py.File(tmp_path / "a.h5", "w") as file:
        file.create_virtual_dataset("all", layout)
    with h5py.File(tmp_path / "b.h5", "w") as file:
        file["linked"] = h5py.ExternalLink("a.h5", "/all")
    same(read(tmp_path / "a.h5", tmp_path), expected)
    same(read(tmp_path / "b.h5", tmp_path), expected)


def test_a_file_may_begin_with_something_else(tmp_path):
    expected = voxels()
    with h5py.File(tmp_path / "a.h5", "w", userblock_size=1024) as file:
        file["data"] = expected
    same(read(tmp_path / "a.h5", tmp_path), expected)


def test_damage_is_named(tmp_path):
    path = tmp_path / "a.h5"
    with h5py.File(path, "w") as file:
        data = file.create_dataset("data", data=voxels(), chunks=(8, 16, 16), compression="gzip")
        place = data.id.get_chunk_info(3)
    whole = path.read_bytes()
    path.write_bytes(whole[:-1])
    said = refusal(path, tmp_path)
    assert f"{path}: {len(whole) - 1} bytes, but it says that it ends at byte {len(whole)}" in said
    assert "cut short" in said
    path.write_bytes(whole[:40])
    assert "within its first bytes" in refusal(path, tmp_path)
    path.write_bytes(b"no HDF5" * 1000)
    assert "this is not an HDF5 file" in refusal(path, tmp_path)
    path.write_bytes(whole[:100] + bytes(len(whole) - 100))
    assert f"{path}: " in refusal(path, tmp_path)
    start, end = place.byte_offset, place.byte_offset + place.size
    path.write_bytes(whole[:start] + b"\xff" * place.size + whole[end:])
    done = convert(path, tmp_path / "a.npy")
    assert done.returncode == 1
    assert f"error: {path}:/data: voxels [0..20, 0..33, 0..41]: " in done.stderr
    assert "hint: it is damaged" in done.stderr


def test_an_unknown_filter_is_named(tmp_path):
    with h5py.File(tmp_path / "a.h5", "w") as file:
        # Optional, so that h5py creates what it could not compress.
        properties = h5py.h5p.create(h5py.h5p.DATASET_CREATE)
        properties.set_chunk((8, 16, 16))
        properties.set_filter(32008, h5py.h5z.FLAG_OPTIONAL, (0, 2))
        space = h5py.h5s.create_simple((20, 33, 41))
        h5py.h5d.create(file.id, b"data", h5py.h5t.STD_U16LE, space, properties)
    said = refusal(tmp_path / "a.h5", tmp_path, HDF5_PLUGIN_PATH="/nowhere")
    assert "packed by filter 32008" in said
    assert "hint: `pip install hdf5plugin`" in said


def test_hdf5_is_not_written(tmp_path):
    np.save(tmp_path / "a.npy", voxels())
    for name in ["out.h5", "out.nxs", "out.h5:/data"]:
        said = refusal(tmp_path / "a.npy", tmp_path, name)
        assert f"{tmp_path}/{name}: HDF5 files are read and not written" in said
        assert "hint: write zarr" in said
    assert [path.name for path in tmp_path.iterdir()] == ["a.npy"]


def test_a_missing_library_is_said(tmp_path):
    path = write(tmp_path / "a.h5", data=voxels())
    said = refusal(path, tmp_path, SIRTAKI_HDF5="/nowhere/libhdf5.so")
    assert f"{path}: HDF5's library libhdf5 cannot be loaded from /nowhere/libhdf5.so" in said
    assert "pip install h5py" in said and "SIRTAKI_HDF5" in said
    assert f"libhdf5 is not in {tmp_path}" in refusal(path, tmp_path, SIRTAKI_HDF5=str(tmp_path))
