"""Volumes that other libraries wrote are read, and those that Sirtaki writes are read by others.

The program under test is the example ``convert`` of the crate ``sirtaki-volume``, which copies a
volume from any format into any other.
"""

import gzip
import json
import os
import subprocess
from pathlib import Path

import mrcfile
import nibabel
import numpy as np
import pytest
import tifffile
import zarr
import zarr.codecs
from numcodecs import LZ4, Blosc, GZip, Zlib, Zstd

ROOT = Path(__file__).parents[2]
CONVERT = os.environ.get("SIRTAKI_TEST_CONVERT", str(ROOT / "target/debug/examples/convert"))
COMPRESSIONS = ["none", "gzip", "zlib", "zstd", "lz4", "blosc", "blosc-bits"]
DTYPES = ["uint8", "int16", "uint32", "float16", "float32", "float64", "int64", "bool"]


def convert(source, target, **settings):
    words = [f"{name}={value}" for name, value in settings.items()]
    done = subprocess.run(
        [CONVERT, source, target, *words], capture_output=True, text=True, timeout=300, check=False
    )
    assert done.returncode == 0, done.stderr
    return target


def refusal(source, target):
    done = subprocess.run(
        [CONVERT, source, target], capture_output=True, text=True, timeout=300, check=False
    )
    assert done.returncode == 1
    assert "panicked" not in done.stderr
    return done.stderr


def voxels(shape=(20, 33, 41), dtype="uint16"):
    random = np.random.default_rng(7)
    smooth = np.add.outer(
        np.add.outer(np.arange(shape[-3]), np.arange(shape[-2])), np.arange(shape[-1])
    )
    values = (np.broadcast_to(smooth, shape) + random.integers(0, 4, shape)) % 251
    values[..., : shape[-1] // 4] = 0
    return values.astype(dtype)


def read(path, folder):
    """What Sirtaki reads from a file."""
    return np.load(convert(path, folder / "read.npy"))


def same(found, expected):
    assert found.dtype == expected.dtype
    assert found.shape == expected.shape
    assert found.tobytes() == np.ascontiguousarray(expected).tobytes()


V2 = {
    "none": None,
    "blosc": Blosc(),
    "blosc-bits": Blosc("zstd", 3, Blosc.BITSHUFFLE),
    "blosc-zlib": Blosc("zlib", 3, Blosc.NOSHUFFLE, blocksize=1000),
    "blosc-lz4hc": Blosc("lz4hc", 9, Blosc.SHUFFLE, blocksize=4096),
    "gzip": GZip(5),
    "zlib": Zlib(5),
    "zstd": Zstd(5),
    "lz4": LZ4(),
}
V3 = {
    "none": [],
    "zstd": [zarr.codecs.ZstdCodec(level=3, checksum=True)],
    "gzip": [zarr.codecs.GzipCodec(level=3)],
    "blosc": [zarr.codecs.BloscCodec(cname="lz4", shuffle="shuffle")],
    "blosc-bits": [
        zarr.codecs.BloscCodec(cname="zstd", shuffle="bitshuffle"),
        zarr.codecs.Crc32cCodec(),
    ],
}


@pytest.mark.parametrize("order", ["C", "F"])
@pytest.mark.parametrize("compressor", V2)
def test_zarr_v2_is_read(tmp_path, compressor, order):
    expected = voxels(dtype=">u2" if compressor == "gzip" else "<u2")
    array = zarr.create_array(
        tmp_path / "a.zarr",
        shape=expected.shape,
        dtype=expected.dtype,
        chunks=(8, 16, 16),
        zarr_format=2,
        order=order,
        compressors=V2[compressor],
        fill_value=3,
    )
    array[:15] = expected[:15]
    expected[15:] = 3
    same(read(tmp_path / "a.zarr", tmp_path), expected.astype("<u2"))


@pytest.mark.parametrize("shards", [None, (16, 32, 32)])
@pytest.mark.parametrize("compressors", V3)
def test_zarr_v3_is_read(tmp_path, compressors, shards):
    expected = voxels(dtype="float32")
    array = zarr.create_array(
        tmp_path / "a.zarr",
        shape=expected.shape,
        dtype=expected.dtype,
        chunks=(8, 16, 16),
        shards=shards,
        compressors=V3[compressors],
        fill_value=float("nan"),
    )
    array[:, :20] = expected[:, :20]
    expected[:, 20:] = np.float32("nan")
    same(read(tmp_path / "a.zarr", tmp_path), expected)


def test_unusual_codecs_of_zarr_are_read(tmp_path):
    expected = voxels(dtype="int16")
    sharding = zarr.codecs.ShardingCodec(
        chunk_shape=(4, 8, 8),
        codecs=[
            zarr.codecs.TransposeCodec(order=(2, 0, 1)),
            zarr.codecs.BytesCodec(endian="big"),
            zarr.codecs.ZstdCodec(level=1),
        ],
        index_location="start",
    )
    array = zarr.create(
        store=tmp_path / "a.zarr",
        shape=expected.shape,
        dtype=expected.dtype,
        chunks=(8, 16, 16),
        codecs=[sharding],
        dimension_names=["z", "y", "x"],
    )
    array[:] = expected
    same(read(tmp_path / "a.zarr", tmp_path), expected)
    kept = zarr.open(convert(tmp_path / "a.zarr", tmp_path / "b.zarr"))
    same(kept[:], expected)
    assert (kept.chunks, kept.shards) == ((4, 8, 8), (8, 16, 16))
    assert kept.metadata.dimension_names == ("z", "y", "x")


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("version", [2, 3])
def test_zarr_is_written(tmp_path, version, dtype):
    expected = voxels(dtype=dtype)
    np.save(tmp_path / "a.npy", expected)
    out = convert(tmp_path / "a.npy", tmp_path / "a.zarr", zarr=version, chunk="8,16,16")
    found = zarr.open(out, mode="r")
    assert (found.metadata.zarr_format, found.chunks) == (version, (8, 16, 16))
    same(found[:], expected)


@pytest.mark.parametrize("version", [2, 3])
@pytest.mark.parametrize("compression", COMPRESSIONS)
def test_every_compression_of_zarr_is_written(tmp_path, compression, version):
    expected = voxels((70, 70, 70), "uint16")
    np.save(tmp_path / "a.npy", expected)
    settings = {"zarr": version, "chunk": "64,64,64", "compression": compression}
    if version == 3:
        settings["shard"] = "128,128,64"
    found = zarr.open(convert(tmp_path / "a.npy", tmp_path / "a.zarr", **settings), mode="r")
    assert found.shards == ((128, 128, 64) if version == 3 else None)
    same(found[:], expected)


@pytest.mark.parametrize("version", [2, 3])
def test_images_keep_voxel_size_and_get_levels(tmp_path, version):
    expected = voxels((2, 40, 40, 40), "uint8")
    group = zarr.create_group(tmp_path / "a.zarr", zarr_format=version)
    array = group.create_array("s0", shape=expected.shape, dtype="uint8", chunks=(1, 16, 16, 16))
    array[:] = expected
    axes = [{"name": "c", "type": "channel"}] + [
        {"name": name, "type": "space", "unit": "micrometer"} for name in "zyx"
    ]
    scale = [1.0, 2.0, 0.5, 0.5]
    steps = [{"type": "scale", "scale": scale}]
    image = [{"axes": axes, "datasets": [{"path": "s0", "coordinateTransformations": steps}]}]
    if version == 2:
        image[0]["version"] = "0.4"
        group.attrs.update({"multiscales": image, "note": "kept"})
    else:
        group.attrs.update({"ome": {"version": "0.5", "multiscales": image}, "note": "kept"})
    written = zarr.open_group(
        convert(tmp_path / "a.zarr", tmp_path / "b.zarr", levels=5), mode="r"
    )
    assert (written.metadata.zarr_format, written.attrs["note"]) == (version, "kept")
    found = (written.attrs["ome"] if version == 3 else written.attrs)["multiscales"][0]
    assert found["axes"] == axes
    scales = [level["coordinateTransformations"][0]["scale"] for level in found["datasets"]]
    assert scales == [[1.0, 2.0 * f, 0.5 * f, 0.5 * f] for f in (1, 2, 4)]
    same(written[found["datasets"][0]["path"]][:], expected)
    level = expected.astype(float).reshape(2, 20, 2, 20, 2, 20, 2).mean(axis=(2, 4, 6))
    coarse = written[found["datasets"][1]["path"]]
    np.testing.assert_array_equal(coarse[:], np.floor(level + 0.5).astype("uint8"))
    assert coarse.chunks == (1, 16, 16, 16)
    same(np.load(convert(tmp_path / "b.zarr", tmp_path / "c.npy", level=1)), coarse[:])


@pytest.mark.parametrize("dtype", [*DTYPES, ">f4", ">i2"])
@pytest.mark.parametrize("order", ["C", "F"])
def test_npy_is_read(tmp_path, dtype, order):
    expected = np.asarray(voxels(dtype=dtype), order=order)
    np.save(tmp_path / "a.npy", expected)
    same(read(tmp_path / "a.npy", tmp_path), expected.astype(expected.dtype.newbyteorder("<")))


def test_raw_is_read_and_written(tmp_path):
    expected = voxels(dtype="int16")
    (tmp_path / "a.raw").write_bytes(b"head" + expected.astype(">i2").tobytes())
    shape = ",".join(map(str, expected.shape))
    settings = {"shape": shape, "dtype": "int16", "offset": 4, "endian": "big"}
    out = convert(tmp_path / "a.raw", tmp_path / "b.raw", **settings)
    assert out.read_bytes() == expected.tobytes()


TIFFS = {
    "plain": {},
    "big": {"bigtiff": True, "byteorder": ">"},
    "deflate": {"compression": "zlib", "predictor": True},
    "strips": {"compression": "zlib", "rowsperstrip": 7, "byteorder": ">", "predictor": True},
    "lzw": {"compression": "lzw", "predictor": True},
    "packbits": {"compression": "packbits"},
    "zstd": {"compression": "zstd", "tile": (16, 32)},
    "tiles": {"tile": (16, 16)},
    "apart": {"contiguous": False, "metadata": None},
}


@pytest.mark.parametrize("dtype", ["uint8", "uint16", "int32", "float32", "float64"])
@pytest.mark.parametrize("kind", TIFFS)
def test_tiff_is_read(tmp_path, kind, dtype):
    expected = voxels(dtype=dtype)
    tifffile.imwrite(tmp_path / "a.tif", expected, photometric="minisblack", **TIFFS[kind])
    same(read(tmp_path / "a.tif", tmp_path), expected)


def test_descriptions_of_tiff_are_read(tmp_path):
    expected = voxels((2, 5, 33, 41), "uint16")
    physical = {"PhysicalSizeX": 0.5, "PhysicalSizeY": 0.5, "PhysicalSizeZ": 2.0}
    tifffile.imwrite(
        tmp_path / "a.ome.tif", expected, metadata={"axes": "CZYX", **physical}, compression="zlib"
    )
    same(read(tmp_path / "a.ome.tif", tmp_path), expected)
    group = zarr.open_group(convert(tmp_path / "a.ome.tif", tmp_path / "a.zarr"), mode="r")
    image = group.attrs["ome"]["multiscales"][0]
    assert [axis["name"] for axis in image["axes"]] == ["c", "z", "y", "x"]
    assert image["datasets"][0]["coordinateTransformations"][0]["scale"] == [1, 2, 0.5, 0.5]
    tifffile.imwrite(tmp_path / "j.tif", expected.transpose(1, 0, 2, 3), imagej=True)
    same(np.load(convert(tmp_path / "j.tif", tmp_path / "j.npy")), expected.transpose(1, 0, 2, 3))
    colours = voxels((3, 33, 41), "uint8").transpose(1, 2, 0)
    tifffile.imwrite(tmp_path / "c.tif", colours, photometric="rgb")
    same(np.load(convert(tmp_path / "c.tif", tmp_path / "c.npy")), colours)
    for compression in ["none", "zlib"]:
        out = tmp_path / f"{compression}.tif"
        same(tifffile.imread(convert(tmp_path / "c.tif", out, compression=compression)), colours)


@pytest.mark.parametrize("compression", ["none", "zlib"])
@pytest.mark.parametrize("dtype", ["uint8", "int16", "float16", "float32", "uint64"])
def test_tiff_is_written(tmp_path, dtype, compression):
    expected = voxels((2, 5, 33, 41), dtype)
    np.save(tmp_path / "a.npy", expected)
    settings = {"compression": compression}
    if compression != "none":
        settings["chunk"] = "1,1,16,16"
    out = convert(tmp_path / "a.npy", tmp_path / "a.ome.tif", **settings)
    same(tifffile.imread(out), expected)
    with tifffile.TiffFile(out) as file:
        assert file.pages[0].compression == (1 if compression == "none" else 8)
        if np.dtype(dtype) in (np.uint8, np.int16, np.float32):
            assert file.is_ome
            assert file.series[0].axes == "CZYX"
    same(read(out, tmp_path), expected)


@pytest.mark.parametrize("dtype", ["int8", "int16", "uint16", "float16", "float32"])
def test_mrc_is_read_and_written(tmp_path, dtype):
    expected = (voxels() % 100).astype(dtype)
    with mrcfile.new(tmp_path / "a.mrc") as file:
        file.set_data(expected)
        file.voxel_size = (1.5, 2.5, 3.5)
        file.set_extended_header(np.zeros(64, dtype="V1"))
    same(read(tmp_path / "a.mrc", tmp_path), expected)
    out = convert(tmp_path / "a.mrc", tmp_path / "b.mrc")
    assert mrcfile.validate(out)
    with mrcfile.open(out) as file:
        same(file.data, expected)
        assert file.voxel_size.tolist() == (1.5, 2.5, 3.5)


@pytest.mark.parametrize("kind", [nibabel.Nifti1Image, nibabel.Nifti2Image])
@pytest.mark.parametrize("dtype", ["uint8", "int16", "float32", "float64", "uint64"])
def test_nifti_is_read_and_written(tmp_path, dtype, kind):
    expected = voxels(dtype=dtype)
    affine = np.array([[0, -2, 0, 5], [3, 0, 0, 6], [0, 0, 4, 7], [0, 0, 0, 1.0]])
    image = kind(expected.T, affine, dtype=np.dtype(dtype))
    image.header.set_xyzt_units("mm")
    nibabel.save(image, tmp_path / "a.nii")
    same(read(tmp_path / "a.nii", tmp_path), expected)
    found = nibabel.load(convert(tmp_path / "a.nii", tmp_path / "b.nii"))
    same(np.asarray(found.dataobj).T, expected)
    np.testing.assert_array_equal(found.affine, affine)
    assert found.header.get_xyzt_units()[0] == "mm"
    assert found.header.get_zooms() == (3, 2, 4)
    (tmp_path / "c.nii.gz").write_bytes(gzip.compress((tmp_path / "a.nii").read_bytes()))
    same(np.load(convert(tmp_path / "c.nii.gz", tmp_path / "c.npy")), expected)
    assert sorted(path.name for path in tmp_path.iterdir())[0] == "a.nii"


def test_scaled_nifti_is_read_by_value(tmp_path):
    expected = voxels(dtype="float32") / 7
    image = nibabel.Nifti1Image(expected.T, np.eye(4))
    image.header.set_data_dtype("int16")
    nibabel.save(image, tmp_path / "a.nii")
    values = np.asarray(nibabel.load(tmp_path / "a.nii").dataobj, dtype="float32").T
    np.testing.assert_allclose(read(tmp_path / "a.nii", tmp_path), values, rtol=1e-6)


def test_damage_is_named(tmp_path):
    expected = voxels()
    array = zarr.create_array(
        tmp_path / "a.zarr", shape=expected.shape, dtype=expected.dtype, chunks=(8, 16, 16)
    )
    array[:] = expected
    chunk = tmp_path / "a.zarr/c/1/0/2"
    chunk.write_bytes(chunk.read_bytes()[:-9])
    message = refusal(tmp_path / "a.zarr", tmp_path / "a.npy")
    assert "c/1/0/2" in message
    assert "chunk [1, 0, 2]" in message
    assert "hint: " in message
    assert not (tmp_path / "a.npy").exists()
    metadata = tmp_path / "a.zarr/zarr.json"
    described = json.loads(metadata.read_text())
    described["codecs"].append({"name": "numcodecs.bz2", "configuration": {}})
    metadata.write_text(json.dumps(described))
    assert "numcodecs.bz2" in refusal(tmp_path / "a.zarr", tmp_path / "b.npy")
