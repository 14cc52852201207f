"""The suites of the repository: what they say of themselves, and the data and the runtimes that they lean on."""

from __future__ import annotations

import importlib.util
import re
import sysconfig
from pathlib import Path

import numpy as np
import onnx
import onnx_networks
import pytest
from PIL import Image

from qbench import registry, user_code
from qbench.datasets import photos
from qbench.errors import DataError
from qbench.gating.baseline import read_baseline
from qbench.models.base import ModelReference
from qbench.models.weights import code_digest
from qbench.plan.planner import make_plan
from qbench.quant.onnx import onnxruntime_quantizers, onnxruntime_session
from qbench.quant.recipe import Recipe
from qbench.suite import read

SUITES = Path(__file__).resolve().parent.parent / "suites"
EACH = pytest.mark.parametrize("file", sorted(SUITES.glob("*.yaml")), ids=lambda file: file.stem)


@EACH
def test_a_suite_says_what_it_shows_what_it_needs_and_how_long_it_takes(file):
    """Its comment on top tells all three."""
    comment = file.read_text(encoding="utf-8").partition("\nsuite:")[0]
    head = " ".join(line.removeprefix("#").strip() for line in comment.splitlines())
    assert "What it shows: " in head
    assert re.search(r"Expected time( on 2 (quiet )?cores)?: .*(minute|second)", head)
    models = [registry.load("model", model.name) for model in read(file).models]
    for extra in {model.extra for model in models if model.extra}:
        assert re.search(rf"pip install -e '\.\[([a-z]+,)*{extra}[],]", head)


@EACH
def test_the_guide_lists_every_suite(file):
    """A suite that nobody finds shows nothing."""
    assert f"| `suites/{file.name}` |" in (SUITES.parent / "qbench/guide/suites.md").read_text(encoding="utf-8")


@pytest.mark.parametrize("name", registry.names("model"))
def test_every_built_in_has_a_digest_of_its_code(name):
    """Also one whose function has arguments bound; one that is a file has no code."""
    assert (code_digest(ModelReference(name=name)) is None) == (registry.load("model", name).build is None)


# ---- magika: files of this machine -----------------------------------------------------------------------------------


@pytest.fixture
def files(monkeypatch, tmp_path):
    """``load`` of magika's suite on a machine whose standard library has these files (``__`` is a folder, ``_`` a
    dot) and that has no package."""
    folders = {"stdlib": tmp_path / "lib", "purelib": tmp_path / "packages"}
    monkeypatch.setattr(sysconfig, "get_path", lambda key: str(folders[key]))

    def load(split, **contents):
        for name, content in contents.items():
            file = folders["stdlib"] / name.replace("__", "/").replace("_", ".")
            file.parent.mkdir(parents=True, exist_ok=True)
            file.write_bytes(content)
        return user_code.attribute(SUITES / "magika_files.py", "load", error=DataError)(split)

    return load


def test_files_become_their_first_and_last_bytes(files):
    """White space at the ends is left out, what is missing is 256, and fewer than 8 bytes are no example."""
    long = b"first " + bytes(range(1, 200)) * 50 + b" last"
    train = files("train", a_py=b"  print(1)\n\n", b_py=b" short ", c_bin=b"\n" + long + b"\n\n")
    test = files("test")
    rows = {name: row for split in (train, test) for name, row in zip(split["ids"], split["inputs"], strict=True)}
    assert sorted(rows) == ["a.py", "c.bin"]
    assert rows["a.py"].tolist() == [*b"print(1)\n\n", *[256] * (2048 - 20), *b"  print(1)"]
    assert rows["c.bin"].tolist() == [*long[:1024], *long[-1024:]]


def test_no_file_serves_calibration_and_evaluation(files):
    """Files that look alike to the network count once, what byte code was compiled is no file of Python's, a suffix
    has its most, and every other example is for the test."""
    many = {f"f{i}_txt": b"text number %d" % (i % 50) for i in range(200)}
    train = files("train", **many, __pycache____x_txt=b"compiled 1", g_py=b"print(1234)")
    test = files("test")
    rows = {bytes(row) for split in (train, test) for row in split["inputs"]}
    assert len(rows) == len(train["ids"]) + len(test["ids"])
    assert {Path(name).suffix for name in (*train["ids"], *test["ids"])} == {".txt", ".py"}
    assert len(rows) <= 51
    assert abs(len(train["ids"]) - len(test["ids"])) <= 1
    assert train["labels"] is test["labels"] is None


def test_the_features_are_magikas_own(files, tmp_path):
    """What the network reads of a file here is what magika hands to it."""
    magika = pytest.importorskip("magika")
    from magika.types.seekable import Seekable

    random = np.random.default_rng(0)
    sizes = (8, 700, 1024, 1500, 4096, 4200, 9000)
    contents = {f"f{size}_bin": b" \n" + random.bytes(size) + b"\t " for size in sizes}
    for split in ("train", "test"):
        data = files(split, **contents)
        for name, row in zip(data["ids"], data["inputs"], strict=True):
            with (tmp_path / "lib" / name).open("rb") as stream:
                own = magika.Magika._extract_features_from_seekable(Seekable(stream), 1024, 0, 1024, 256, 4096, False)
            assert row.tolist() == [*own.beg, *own.end], name


# ---- imagenet: photos ------------------------------------------------------------------------------------------------


@pytest.fixture
def foolbox(monkeypatch, tmp_path):
    """A package with twenty small photos, each of two colours of its own and with its number as label."""
    folder = tmp_path / "foolbox" / "data"
    folder.mkdir(parents=True)
    for i in range(20):
        pixels = np.full((40, 48, 3), 10 * i, dtype=np.uint8)
        pixels[:20, :, 1] = 255 - 10 * i
        Image.fromarray(pixels).save(folder / f"imagenet_{i:02d}_{7 * i}.jpg")
    (tmp_path / "foolbox" / "__init__.py").write_text("raise ImportError('takes a second')")
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: _spec(tmp_path / name))
    return folder


def _spec(folder):
    return importlib.util.spec_from_file_location(
        folder.name, folder / "__init__.py", submodule_search_locations=[str(folder)]
    )


def opened(value=None, **options):
    return photos.open_dataset(value, base=Path(), options=options)


def test_no_photo_serves_calibration_and_evaluation(foolbox):
    """Ten photos in ten crops each calibrate; the ten others are evaluated, each once, under its label."""
    data = opened(size=16, resize=20)
    train, test = data.load("train"), data.load("test")
    assert (train.inputs[0].shape, test.inputs[0].shape) == ((100, 3, 16, 16), (10, 3, 16, 16))
    photo = [name.partition("#")[0] for name in train.ids]
    assert len({*photo, *test.ids}) == 20
    for examples, names in ((train, photo), (test, test.ids)):
        assert [f"_{label}.jpg" for label in examples.labels] == [name[11:] for name in names]
    assert len(set(train.ids)) == 100


def test_crops_are_parts_of_the_photo_as_it_is_evaluated(foolbox):
    """The crop of the centre is what an evaluation takes; the others lie at the corners, or are its mirror image."""
    data = opened(size=16, resize=20)
    train, names = data.load("train").inputs[0], list(data.load("train").ids)
    data.files["test"] = data.files["train"]
    assert (train[::10] == data.load("test").inputs[0]).all()
    first = {name.partition("#")[2]: train[i].astype(int) for i, name in enumerate(names[:10])}
    assert (first["centre-mirrored"] == first["centre"][:, :, ::-1]).all()
    assert first["top-left"][1].mean() > first["centre"][1].mean() > first["bottom-left"][1].mean()


def test_without_the_package_the_error_names_both_ways_out(monkeypatch):
    """The extra that brings the photos, or a folder of one's own."""
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: None)
    expected = (
        r"imagenet: foolbox is not installed; pip install .*\[zoo\]'? brings them .*, or name a folder of your own"
    )
    with pytest.raises(DataError, match=expected):
        opened()


def test_a_package_with_other_photos_is_no_source_of_them(foolbox):
    """Another release may carry fewer: that is said with their number, and not as a package that is missing."""
    next(foolbox.glob("*.jpg")).unlink()
    with pytest.raises(DataError, match="imagenet: foolbox carries 19 of 20 photos; pip install"):
        opened()


def test_a_folder_of_ones_own_takes_the_place_of_the_photos(foolbox, tmp_path):
    """With the same preprocessing, and every option of an image folder."""
    for label, name in enumerate(("n01", "n02")):
        (tmp_path / "mine" / name).mkdir(parents=True)
        for i in range(4):
            pixels = np.full((30, 30, 3), 50 * label + i, dtype=np.uint8)
            Image.fromarray(pixels).save(tmp_path / "mine" / name / f"{i}.png")
    options = {"size": 16, "resize": 20, "scale": "1/128", "mean": 0.5, "std": 1.0}
    data = opened(str(tmp_path / "mine"), **options, classes=["n00", "n01", "n02"])
    test = data.load("test")
    assert (data.classes, test.labels.tolist(), test.inputs[0].shape[1:]) == (3, [1, 2], (3, 16, 16))
    with pytest.raises(DataError, match="2 class folders, which cannot be matched with the model's 1000 outputs"):
        opened(str(tmp_path / "mine"), **options)
    assert data.preprocessing == opened(**options).preprocessing
    assert opened().preprocessing == opened(mean=[0.485, 0.456, 0.406], std=[0.229, 0.224, 0.225]).preprocessing


# ---- runtimes --------------------------------------------------------------------------------------------------------


def test_whole_numbers_from_a_file_that_is_mapped_run_on_openvino(tmp_path):
    """OpenVINO shares an array's memory, and takes none that may only be read: examples that are not preprocessed."""
    backend = registry.load("backend", "openvino")
    if (missing := backend.missing()) is not None:
        pytest.skip(missing)
    draft, whole = onnx_networks.Draft(), (onnx.TensorProto.INT32, ["n", 3])
    output = draft.add("Add", ["x", "x"], "twice")
    file = onnx_networks.save(draft.model({"x": whole}, {output: whole}), tmp_path)
    np.save(tmp_path / "x.npy", np.arange(6, dtype=np.int32).reshape(2, 3))
    mapped = np.load(tmp_path / "x.npy", mmap_mode="r")
    runner = backend.load(file, threads=1)
    assert runner.outputs(runner(runner.prepare((mapped,)))).tolist() == (2 * mapped).tolist()


def test_a_graph_whose_shapes_are_not_all_known_is_quantized(tmp_path, monkeypatch):
    """ONNX Runtime's symbolic inference gives up on magika; its quantizer needs less than that."""
    from onnxruntime.tools.symbolic_shape_infer import SymbolicShapeInference

    draft = onnx_networks.Draft()
    output = draft.linear("x", "head", 8, 4)
    file = onnx_networks.save(draft.model({"x": ["n", 8]}, {output: ["n", 4]}), tmp_path)

    def gives_up(*args, **kwargs):
        raise Exception("Incomplete symbolic shape inference")

    onnxruntime_quantizers.dynamic(file, tmp_path / "expected.onnx", Recipe(per_channel=True))
    monkeypatch.setattr(SymbolicShapeInference, "infer_shapes", gives_up)
    onnxruntime_quantizers.dynamic(file, tmp_path / "int8.onnx", Recipe(per_channel=True))
    x = np.linspace(-1, 1, 8, dtype=np.float32)[None]
    outputs = [onnxruntime_session.run(tmp_path / name, (x,)) for name in ("int8.onnx", "expected.onnx")]
    assert np.array_equal(*outputs)


# ---- ci: what this repository is held against ------------------------------------------------------------------------


def test_the_committed_baseline_is_of_the_suite_as_it_is():
    """Its cases are those that the suite plans, all ok, with what each example said; no rule needs its machine."""
    suite, baseline = read(SUITES / "ci.yaml"), read_baseline(SUITES.parent / "reports/baselines/ci.jsonl")
    plan = make_plan(suite, cores=1)
    assert {record.case.id for record in baseline.records if record.status == "ok"} == {
        planned.case.id for planned in plan.cases
    }
    assert set(baseline.examples) == {record.case.id for record in baseline.records if record.case.mode != "fp32"}
    given = {f"{section}.{key}" for section, key, value in suite.gate.given() if value is not None}
    assert not given & {"latency.max_regression", "cold_start.max_regression", "memory.max_regression"}


def test_ci_runs_the_gate_of_this_repository():
    """On the suite and the baseline that are committed."""
    script = (SUITES.parent / ".ci/run").read_text(encoding="utf-8")
    assert ".venv/bin/qbench run suites/ci.yaml --quiet\n.venv/bin/qbench gate ci --stored" in script
