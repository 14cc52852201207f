"""What concerns several keys of a suite, or the disk; found on the tree, so that no wrong value hides another."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path as File
from typing import Any

from qbench.errors import Problem
from qbench.files import regular_file
from qbench.suite import data_checks
from qbench.suite.int8_files import list_int8_paths
from qbench.suite.models_and_data import PATH_LOADERS, SOURCES, CalibrateSpec, EvaluateSpec
from qbench.suite.types import near
from qbench.suite.yaml_tree import Node, Path, path_text

# Lists in which a second appearance is a slip of the pen.
LISTS: tuple[Path, ...] = (
    ("matrix", "modes"),
    ("matrix", "backends"),
    ("matrix", "threads"),
    ("matrix", "batch_sizes"),
    ("decide", "prefer"),
    *(("quantize", mode, "skip_layers") for mode in ("dynamic", "static", "qat", "weight_only")),
)


def problems(root: Node, *, base: File | None) -> list[Problem]:
    """Duplicates, cells of unknown models, one split for two purposes, a limit that cannot be judged, twins of
    nothing; missing files if ``base`` is a folder."""
    collected = [*_duplicates(root), *_model_names(root), *_cell_models(root), *_splits(root), *_limits(root)]
    collected += _idle_twin(root)
    if base is not None:
        collected += _missing_files(root, base)
    return collected


def _items(root: Node, path: Path) -> list[Node]:
    node = root.at(path)
    return node.value if node is not None and isinstance(node.value, list) else []


def _duplicates(root: Node) -> Iterator[Problem]:
    for path in LISTS:
        values: list[tuple[type, Any]] = []  # 1 and true are equal in Python, not in a suite
        for index, node in enumerate(_items(root, path)):
            value = (type(node.value), node.plain())
            if value in values and not node.broken:
                yield node.mark.problem("named twice; remove one", path_text((*path, index)))
            values.append(value)


def _named(root: Node) -> Iterator[tuple[Path, Node]]:
    """The name of each model that has one, with its path."""
    for index, node in enumerate(_items(root, ("models",))):
        inner = node.child("name")
        name, path = (node, ("models", index)) if inner is None else (inner[1], ("models", index, "name"))
        if isinstance(name.value, str):
            yield path, name


def _model_names(root: Node) -> Iterator[Problem]:
    first: dict[str, Path] = {}
    for path, name in _named(root):
        if name.value in first:
            what = f"the name '{name.value}' is taken by {path_text(first[name.value])}; give each model its own"
            yield name.mark.problem(what, path_text(path))
        else:
            first[name.value] = path


def _cell_models(root: Node) -> Iterator[Problem]:
    models = [name.value for _, name in _named(root)]
    for key in ("include", "exclude"):
        for index, cell in enumerate(_items(root, ("matrix", key))):
            named = cell.child("model")
            if named is None or not isinstance(named[1].value, str) or named[1].value in models:
                continue
            name = named[1].value
            what = f"no model named '{name}' in this suite{near(name, models) or ';'} models: {', '.join(models)}"
            yield named[1].mark.problem(what, path_text(("matrix", key, index, "model")))


def _splits(root: Node) -> Iterator[Problem]:
    data = root.at(("data",))
    if data is None or not isinstance(data.value, dict):
        return
    overlap = root.at(("data", "overlap"))
    if overlap is not None and overlap.value == "allow":
        return
    calibrate, evaluate = (root.at(("data", key, "split")) for key in ("calibrate", "evaluate"))
    split = CalibrateSpec().split if calibrate is None else calibrate.value
    evaluate_split = EvaluateSpec().split if evaluate is None else evaluate.value
    if split == evaluate_split:
        path: Path = ("data", "calibrate" if evaluate is None else "evaluate", "split")
        what = (
            f"calibration and evaluation both take '{split}'; a score on examples that the calibration saw "
            "proves nothing, so take another split for one of them, or set `overlap: allow` where that is meant"
        )
        yield list(root.walk(path))[-1][1].mark.problem(what, path_text(path))


def _limits(root: Node) -> Iterator[Problem]:
    """A limit on latency beside a protocol that gives no interval: it could never be shown to hold."""
    path: Path = ("decide", "max_latency")
    latency, protocol = root.at(path), root.at(("measure", "protocol"))
    if latency is not None and latency.value is not None and protocol is not None and protocol.value == "sequential":
        what = (
            "protocol sequential gives no interval, so no case could be shown to hold this limit; set "
            "`measure: {protocol: both}`, or leave the limit out"
        )
        yield list(root.walk(path))[-1][0].problem(what, path_text(path))


def _idle_twin(root: Node) -> Iterator[Problem]:
    """``fp32_twin: true`` where no mode is `qat`: there is no training whose twin could be made."""
    path: Path = ("quantize", "qat", "fp32_twin")
    twin, modes = root.at(path), root.at(("matrix", "modes"))
    if twin is None or twin.value is not True or modes is None or not isinstance(modes.value, list):
        return
    cells = (cell.child("mode") for cell in _items(root, ("matrix", "include")))
    asked = [node.value for node in modes.value] + [mode[1].value for mode in cells if mode is not None]
    if "qat" not in asked:
        what = (
            "a twin is the fp32 network with the training of a qat variant, and no mode here is qat; add qat to "
            "matrix.modes, or remove this key"
        )
        yield twin.mark.problem(what, path_text(path))


def _missing_files(root: Node, base: File) -> Iterator[Problem]:
    for path, is_python in _file_keys(root):
        node = root.at(path)
        if node is None or not isinstance(node.value, str) or not node.value.strip():
            continue
        text = node.value.rpartition(":")[0] if is_python else node.value
        target = regular_file.resolve_path(text, base)
        if text and (why := regular_file.explain_unusable(target)) is not None:
            what = f"{why}: {target}; paths start at the suite's own folder"
            yield node.mark.problem(what, path_text(path))


def _file_keys(root: Node) -> Iterator[tuple[Path, bool]]:
    """Paths of the keys that hold a path, and whether a function's name follows it."""
    for index, _ in enumerate(_items(root, ("models",))):
        yield ("models", index, "weights"), False
        yield from ((path, False) for path in list_int8_paths(root, ("models", index, "int8")))
        for key in SOURCES:
            yield ("models", index, "source", key), key == "python"
    for loader in PATH_LOADERS:
        yield ("data", "dataset", loader), loader == "python"
    yield from ((path, True) for path, _ in data_checks.list_training_code(root))
