"""Variants to artifacts: proven int8, keyed by everything that decides their bytes, the same bytes every time."""

from __future__ import annotations

import json
from contextlib import nullcontext
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest
from made_records import int8

from qbench import build as stage
from qbench import network
from qbench.backends.base import Built
from qbench.build import build, read_kept
from qbench.cache import manifest, store
from qbench.data import DataRequest
from qbench.data_preparation import prepare_data
from qbench.errors import BuildError, CaseSkipped
from qbench.metrics.spec import MetricSpec
from qbench.models.base import ModelReference
from qbench.plan.planner import Variant
from qbench.process.child_process import Limits
from qbench.quant.recipe import Recipe

NETWORKS = Path(__file__).parent / "fixtures" / "networks.py"
RECIPE = Recipe(calibrator="histogram", epochs=1, learning_rate=1e-3, batch_size=64, seed=0)


@pytest.fixture(scope="module")
def root(tmp_path_factory):
    return store.open_cache(tmp_path_factory.mktemp("build") / "cache")


@pytest.fixture(scope="module")
def data(root):
    request = DataRequest(
        loader="digits",
        value=None,
        options={},
        base=Path(),
        calibrate_split="train",
        calibrate_samples=32,
        calibrate_seed=0,
        evaluate_split="test",
        evaluate_samples=50,
        evaluate_seed=0,
        train=False,
    )
    return prepare_data(request, root, progress=lambda *_: None)


def model(root, data, attribute="residual_cnn"):
    reference = ModelReference(name="mine", source="python", path=NETWORKS, attribute=attribute)
    return network.prepare_model(reference, data, MetricSpec(name="top1"), root, progress=lambda *_: None)


def make(root, data, mode, backend, *, attribute="residual_cnn", recipe=RECIPE, **options):
    known = model(root, data, attribute)
    variant = Variant(model=known.reference, mode=mode, backend=backend, recipe=recipe)
    return build(
        variant,
        model=known,
        data=data,
        root=root,
        limits=Limits(seconds=120),
        progress=lambda *_: None,
        **options,
    )


@pytest.mark.parametrize(("mode", "backend"), [("static", "onednn"), ("qat", "qnnpack"), ("dynamic", "onednn")])
def test_two_builds_give_the_same_bytes(root, data, tmp_path, mode, backend):
    """Built twice in separate processes from separate caches: equal files, equal outputs."""
    other = store.open_cache(tmp_path / "other")
    first, second = make(root, data, mode, backend), make(other, data, mode, backend)
    assert first.fresh
    assert second.fresh
    assert (first.sha256, first.built.expected) == (second.sha256, second.built.expected)


def test_the_second_build_is_a_hit(root, data):
    """Nothing is built twice; the facts are the same either way."""
    first, again = make(root, data, "fp32", "torch"), make(root, data, "fp32", "torch")
    assert not again.fresh
    assert replace(first, fresh=False) == again


@pytest.mark.parametrize(
    "change",
    [
        {"file": "../../../secret"},
        {"file": "manifest.json"},
        {"layers": [{"name": "conv", "operator": "Conv", "macs": "many", "int8": True}]},
        {"input_ranges": [1]},
        {"expected": ""},
        None,
    ],
)
def test_an_artifact_whose_manifest_says_what_cannot_be_is_built_again(root, data, change):
    """Facts are what the cache's file says, not what was meant: none leads to another file or into a traceback."""
    first = make(root, data, "static", "fbgemm")
    file = first.file.parent / store.MANIFEST
    content = json.loads(file.read_text())
    content["facts"] = {} if change is None else content["facts"] | change
    del content["facts_sha256"]
    file.write_text(json.dumps(content))
    again = make(root, data, "static", "fbgemm")
    assert again.fresh
    assert "damaged (manifest.json says what cannot be" in again.repair
    assert again.facts().note.removeprefix(f"{first.facts().note}; ") == again.repair
    assert (again.sha256, again.built) == (first.sha256, first.built)


def test_size_and_coverage_are_exact(root, data):
    """The size is the file's; static quantizes everything, and the facts say so."""
    artifact = make(root, data, "static", "onednn")
    facts = artifact.facts()
    assert facts.size_bytes == artifact.file.stat().st_size
    assert (facts.coverage.macs_int8, facts.coverage.layers_int8, facts.coverage.float_layers) == (1.0, 3, ())
    assert make(root, data, "fp32", "torch").facts().coverage is None


def test_the_network_is_exported_once_for_all_builds(root, data):
    """int8 on ONNX Runtime starts from the very file that fp32 runs."""
    fp32 = make(root, data, "fp32", "onnxruntime", recipe=Recipe())
    exported = set((root / "shared").iterdir())
    static = make(root, data, "static", "onnxruntime", recipe=replace(RECIPE, first_layer_float=False))
    assert static.facts().coverage.macs_int8 == 1.0
    assert len([entry for entry in (root / "shared").iterdir() if entry.is_dir() and entry not in exported]) == 1
    assert static.built.macs == fp32.built.macs == make(root, data, "fp32", "torch", recipe=Recipe()).built.macs


def test_an_int8_variant_that_runs_in_float_is_a_failure(root, data):
    """Coverage 0 is not a fast fp32: the message names the layers that stayed float."""
    recipe = replace(RECIPE, skip_layers=("stem", "body", "head"))
    with pytest.raises(
        BuildError, match=r"nothing runs in int8: all 3 layers stay float: body .*skip_layers.*stem .*head"
    ):
        make(root, data, "static", "onednn", recipe=recipe)


def test_a_variant_below_its_least_coverage_is_a_failure(root, data):
    """Most of the work left in float is no slow int8: the message has share, bound, and the reason of each layer."""
    recipe = replace(RECIPE, min_coverage=0.5)
    said = r"only [\d.]+ % of the multiply-accumulates run .*, and min_coverage is 50 %: .*lstm.* \(.*use dynamic\)"
    with pytest.raises(BuildError, match=said):
        make(root, data, "static", "onednn", attribute="lstm", recipe=recipe)
    allowed = make(root, data, "static", "onednn", attribute="lstm", recipe=replace(recipe, min_coverage=None))
    assert 0 < allowed.facts().coverage.macs_int8 < 0.5


def test_the_recipes_name_is_not_in_the_key(root, data):
    """Two recipes that do the same are one artifact, whatever they are called."""
    known = model(root, data)
    backend = stage.registry.load("backend", "onednn")
    variants = [
        Variant(model=known.reference, mode="static", backend="onednn", recipe=replace(RECIPE, name=name))
        for name in ("default", "mine")
    ]
    assert len({stage._make_key(variant, backend, known, data) for variant in variants}) == 1


def test_what_counts_as_dynamic_builds_no_other_artifact(root, data):
    """``min_coverage`` labels a dynamic variant after it was built, so it is not in the key; elsewhere it fails one."""
    known = model(root, data)
    backend = stage.registry.load("backend", "onednn")
    keys = {
        mode: {
            stage._make_key(
                Variant(model=known.reference, mode=mode, backend="onednn", recipe=recipe), backend, known, data
            )
            for recipe in (replace(RECIPE, min_coverage=least) for least in (None, 0.01, 0.5))
        }
        for mode in ("dynamic", "static")
    }
    assert (len(keys["dynamic"]), len(keys["static"])) == (1, 3)


def test_a_twins_training_is_in_its_key(root, data):
    """Another schedule or other training examples are another artifact, and none is the plain fp32."""
    known = model(root, data)
    backend = stage.registry.load("backend", "torch")

    def key(recipe, examples=data):
        variant = Variant(model=known.reference, mode="fp32", backend="torch", recipe=recipe)
        return stage._make_key(variant, backend, known, examples)

    twin = Recipe(name="twin", epochs=1, learning_rate=1e-3)
    others = replace(data, training_digest="f" * 64)
    keys = {key(Recipe()), key(twin), key(replace(twin, epochs=2)), key(twin, others)}
    assert len(keys) == 4
    assert key(Recipe(), others) == key(Recipe())
    assert key(replace(twin, name="twin-fbgemm")) == key(twin)


def test_the_code_of_a_training_is_in_its_key(root, data, tmp_path):
    """A changed loss makes another artifact, and so do another optimizer and another key of it; the same text, and what
    the mode does not train, does not. The file is found from the suite's folder."""
    known, backend = model(root, data), stage.registry.load("backend", "onednn")
    here = replace(data, request=replace(data.request, base=tmp_path))
    file = tmp_path / "losses.py"

    def key(mode="qat", text="def own(a, b): ...", **changes):
        file.write_text(text)
        variant = Variant(model=known.reference, mode=mode, backend="onednn", recipe=replace(RECIPE, **changes))
        return stage._make_key(variant, backend, known, here)

    own = {"loss": "losses.py:own"}
    momentum = {"optimizer": "sgd", "optimizer_keys": (("momentum", 0.9),)}
    keys = [key(), key(**own), key(text="def own(a, b): return 1", **own), key(optimizer="sgd"), key(**momentum)]
    assert len({*keys, key(train="losses.py:own")}) == 6
    assert key(**own) == keys[1]
    assert key("static", "1") == key("static", "2")


def test_rewrites_and_layer_numbers_are_kept(root, data):
    """What the network was rewritten into before, and how far each layer is from fp32, are facts of the artifact."""
    artifact = make(root, data, "static", "onednn")
    facts, layers = artifact.facts(), artifact.built.conversion.layer_numbers
    assert any("bn" in rewrite or "norm" in rewrite.lower() for rewrite in facts.rewrites)
    assert facts.rewrite_difference < 1e-4
    assert {"stem", "body", "head"} <= {layer["name"] for layer in layers}
    assert all(layer["sqnr_db"] > 10 for layer in layers)
    plain = make(root, data, "static", "onednn", recipe=replace(RECIPE, canonicalize=False)).facts()
    assert (plain.rewrites, plain.rewrite_difference) == ((), None)


def test_a_kept_artifact_is_read_with_all_that_is_known_of_its_build(root, data):
    """Its manifest says each fact at one level, as those that were kept earlier do; their note was one text."""
    artifact = make(root, data, "static", "onednn")
    facts = dict(manifest.read(artifact.file.parent).facts)
    assert {"file", "layers", "expected", "rewrites", "layer_numbers", "input_ranges", "target"} <= set(facts)
    kept = read_kept(artifact.file, int8())
    assert (kept.built, kept.fresh, kept.sha256, kept.key) == (artifact.built, False, artifact.sha256, artifact.key)
    del facts["notes"]
    manifest.write(artifact.file.parent, {**facts, "note": "as one text"})
    earlier = read_kept(artifact.file, int8()).built
    assert earlier == replace(artifact.built, conversion=artifact.built.conversion.with_notes())


def test_a_shared_file_is_made_once_for_the_same_parts(tmp_path):
    """Builds of one network on the same calibration data share it; other parts, another file."""
    root, files = store.open_cache(tmp_path / "cache"), []

    def make_file(path):
        files.append(path)
        path.write_text("ranges")

    def share(**parts):
        return stage._fetch_shared(root, {"model": "m", "data": "d"}, parts, make_file)

    assert share(calibrator="minmax") == share(calibrator="minmax") != share(calibrator="mse")
    assert share(calibrator="minmax").read_text() == "ranges"
    assert len(files) == 2


def test_qat_that_may_not_train_comes_from_the_cache_alone(root, data):
    """A quick look skips it with what to do, until a run proper has trained it; what trains nothing is built."""
    recipe = replace(RECIPE, seed=7)
    with pytest.raises(CaseSkipped, match="run the suite without --quick once"):
        make(root, data, "qat", "qnnpack", attribute="perceptron", recipe=recipe, train_qat=False)
    trained = make(root, data, "qat", "qnnpack", attribute="perceptron", recipe=recipe)
    again = make(root, data, "qat", "qnnpack", attribute="perceptron", recipe=recipe, train_qat=False)
    assert (again.sha256, again.fresh) == (trained.sha256, False)
    assert make(root, data, "static", "qnnpack", attribute="perceptron", train_qat=False).mode == "static"


def test_a_twin_that_may_not_train_is_skipped(root, data):
    """The fp32 twin of a QAT is trained as that is; plain fp32 is not."""
    twin = Recipe(name="twin", epochs=1, learning_rate=1e-3, batch_size=64, seed=11)
    with pytest.raises(CaseSkipped, match="run the suite without --quick once"):
        make(root, data, "fp32", "torch", attribute="perceptron", recipe=twin, train_qat=False)
    assert make(root, data, "fp32", "torch", attribute="perceptron", recipe=Recipe(), train_qat=False).mode == "fp32"


def test_what_failed_is_not_cached(root, data):
    """A failure is tried again, not remembered."""
    recipe = replace(RECIPE, skip_layers=("nowhere",))
    for _ in range(2):
        with pytest.raises(BuildError, match="no layer named nowhere"):
            make(root, data, "static", "onednn", recipe=recipe)


def test_every_ingredient_is_in_the_key(root, data, monkeypatch, tmp_path):
    """Model, mode, backend, recipe, calibration data, versions, ISA, pipeline code: each changes the key alone."""
    known = model(root, data)
    backend = stage.registry.load("backend", "onednn")
    variant = Variant(model=known.reference, mode="static", backend="onednn", recipe=RECIPE)

    def key(variant=variant, known=known, data=data, **more):
        return stage._make_key(variant, backend, known, data, **more)

    kept = tmp_path / "kept"
    kept.write_text("by an earlier run")
    keys = [
        key(),
        key(watched=True),
        key(kept=kept),
        key(known=replace(known, weights_digest="other")),
        key(known=replace(known, code_digest="other")),
        key(variant=replace(variant, mode="dynamic")),
        key(variant=replace(variant, backend="x86")),
        key(variant=replace(variant, recipe=replace(RECIPE, per_channel=False))),
        key(data=replace(data, calibration_digest="other")),
    ]
    for name, value in {"versions": {"torch": "0"}, "isa": ("sse2",)}.items():
        with monkeypatch.context() as patch:
            patch.setattr(stage.fingerprint, name, lambda *_, value=value: value)
            keys.append(key())
    for switch in stage.fingerprint.HIDING_VARIABLES:  # each makes kernels of another instruction set run
        with monkeypatch.context() as patch:
            patch.setenv(switch, "SSE41")
            keys.append(key())
    with monkeypatch.context() as patch:
        patch.setattr(stage, "_pipeline_digest", lambda: "other")
        keys.append(key())
    assert len(set(keys)) == len(keys)


def test_dynamic_does_not_depend_on_calibration(root, data):
    """What a mode does not look at is not in its key: other calibration data, the same artifact."""
    known = model(root, data)
    variant = Variant(model=known.reference, mode="dynamic", backend="onednn", recipe=RECIPE)
    backend = stage.registry.load("backend", "onednn")
    other = replace(data, calibration_digest="other")
    assert stage._make_key(variant, backend, known, data) == stage._make_key(variant, backend, known, other)


def test_what_a_build_left_runs_on_one_thread(monkeypatch, tmp_path):
    """For its outputs, which are its fingerprint, as for what was kept of an earlier one: more share the sums
    otherwise."""
    asked = []
    runner = SimpleNamespace(context=nullcontext, digest=lambda inputs: f"digest of {inputs}")
    backend = SimpleNamespace(
        load=lambda file, *, threads: asked.append((file.name, threads)) or runner,
        read_layers=lambda job, file: None,
    )
    data = SimpleNamespace(probe=lambda batch: batch)
    assert stage.outputs_digest(backend, Path("a.onnx"), data, 4) == "digest of 4"
    kept = tmp_path / "kept"
    (kept / "inner").mkdir(parents=True)
    (kept / "a.onnx").write_text("network")
    (kept / "inner/weights").write_text("weights")
    facts = {"format": "onnx", "file": "a.onnx", "layers": [], "expected": "e"}
    manifest.write(kept, facts)
    (tmp_path / "job").mkdir()
    built = stage._take_kept(backend, SimpleNamespace(folder=tmp_path / "job"), kept / "a.onnx")
    assert (built.file, built.layers, asked) == ("a.onnx", (), [("a.onnx", 1)] * 2)
    assert (tmp_path / "job/inner/weights").read_text() == "weights"
    backend.read_layers = lambda job, file: ("layer",)
    (tmp_path / "again").mkdir()
    again = stage._take_kept(backend, SimpleNamespace(folder=tmp_path / "again"), kept / "a.onnx")
    assert (again.layers, again.uncounted) == (("layer",), None)


@pytest.mark.parametrize(
    ("mode", "kept", "checked", "trains"),
    [
        ("static", None, ["int8"], False),
        ("qat", None, ["int8"], True),
        ("bf16", None, ["bf16"], False),
        ("fp32", None, [], False),
        ("static", "file", [], False),
        ("qat", "file", [], False),
        ("bf16", "file", [], False),
    ],
)
def test_what_is_built_is_what_it_is_called(monkeypatch, mode, kept, checked, trains):
    """An int8 variant runs in int8, one of 16 bits in those; what was kept is taken as it is, and trains nothing."""
    built = Built(format="f", file="a", layers=(), fixed_batch=3 if mode == "bf16" else None)
    asked, jobs = [], []
    backend = SimpleNamespace(build=lambda job: jobs.append(job) or built)
    monkeypatch.setattr(stage.registry, "load", lambda kind, name: backend)
    monkeypatch.setattr(stage, "load_network", lambda reference, weights: "network")
    monkeypatch.setattr(stage, "BuildJob", lambda **facts: SimpleNamespace(**facts))
    monkeypatch.setattr(stage, "_take_kept", lambda backend, job, file: jobs.append(job) or built)
    monkeypatch.setattr(stage, "require_int8", lambda built, least: asked.append("int8"))
    monkeypatch.setattr(stage, "require_named", lambda built, mode: asked.append(mode))
    monkeypatch.setattr(stage, "outputs_digest", lambda backend, file, data, batch: f"of {batch}")
    monkeypatch.setattr(stage, "set_torch", lambda threads: asked.append(threads))
    reference = ModelReference(name="m")
    known = SimpleNamespace(reference=reference, weights=None, weights_digest="w", code_digest="c")
    data = SimpleNamespace(
        calibration=lambda: "examples", training=lambda: "training", request=None, calibration_digest="d"
    )
    variant = Variant(model=reference, mode=mode, backend="fake", recipe=Recipe())
    where = (Path("root"), "key")
    facts = stage.build_here(
        variant, known, data, Path("folder"), where, kept=kept and Path(kept), progress=lambda *_: None
    )
    assert asked == [1, *checked]
    assert facts["expected"] == ("of 3" if mode == "bf16" else "of 1")
    assert jobs[0].training == ("training" if trains else None)
    assert (jobs[0].watched, jobs[0].checkpoints) == (False, Path("root/unfinished/key"))


@pytest.mark.parametrize(
    ("mode", "changes", "options", "is_skipped"),
    [
        ("qat", {}, {"train_qat": False}, True),
        ("qat", {}, {"train_qat": True}, False),
        ("qat", {"file": "int8.onnx"}, {"train_qat": False}, False),
        ("qat", {}, {"train_qat": False, "kept": Path("kept")}, False),
        ("static", {}, {"train_qat": False}, False),
    ],
)
@pytest.mark.parametrize("watched_builds", [False, True])
def test_only_what_would_train_is_left_out(monkeypatch, mode, changes, options, is_skipped, watched_builds):
    """A file of the user's own was trained elsewhere, and one that was kept before. Only a backend whose files are
    built to be watched builds another one to be."""
    asked = []
    backend = SimpleNamespace(resolve=lambda mode, recipe: recipe, watched_builds=watched_builds)
    monkeypatch.setattr(stage.registry, "load", lambda kind, name: backend)
    monkeypatch.setattr(stage, "_make_key", lambda *given: asked.append(given[4]) or "key")
    monkeypatch.setattr(stage, "_make_artifact", lambda *given: given[3])
    monkeypatch.setattr(stage.store, "fetch", lambda root, room, key, fill, read: fill(Path("folder")))
    variant = Variant(model=ModelReference(name="m"), mode=mode, backend="b", recipe=replace(RECIPE, **changes))

    def run_child(function, *given, limits, progress):
        return given

    with pytest.raises(CaseSkipped, match="it would have to be trained") if is_skipped else nullcontext():
        given = build(
            variant, model=None, data=None, root=Path("root"), limits=None, progress=None, run_child=run_child,
            watched=True, **options,
        )  # fmt: skip
        assert given[5:] == (watched_builds, options.get("kept"))
    assert asked == [watched_builds]


def test_the_size_of_an_example_is_in_the_key(root, data):
    """All of its axes, and its type: a file may be made for them."""
    known, backend = model(root, data), stage.registry.load("backend", "onednn")
    variant = Variant(model=known.reference, mode="static", backend="onednn", recipe=RECIPE)

    def key(*shape, kind=np.float32):
        given = {"calibration_digest": "d", "training_digest": "t", "request": None}
        other = SimpleNamespace(**given, evaluation=lambda start, stop: (np.zeros((stop - start, *shape), kind),))
        return stage._make_key(variant, backend, known, other)

    assert len({key(1, 8, 8), key(3, 8, 8), key(1, 8, 9), key(1, 8, 8, kind=np.int64)}) == 4
    assert key(1, 8, 8) == key(1, 8, 8)
