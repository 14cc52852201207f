"""Whether the arrays of an ``.npz`` file can be what a suite asks of them: by their headers, before a run."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from pathlib import Path as File
from typing import Any

from qbench.datasets.npz_keys import DIMENSIONS, Keys, split_keys
from qbench.errors import DataError, ModelError, Problem
from qbench.files import npz_file, regular_file
from qbench.suite.models_and_data import CalibrateSpec, DataSpec, EvaluateSpec
from qbench.suite.yaml_tree import Node, Path, path_text

DATASET: Path = ("data", "dataset")
LARGEST_ONNX = 64 * 2**20  # bytes; a larger file would take longer to read than a plan may
Shape = tuple[int, ...]


def problems(root: Node, *, base: File | None) -> Iterator[Problem]:
    """Splits that are not there, more samples than a split has, a layout that does not fit the arrays, and inputs of an
    ONNX file that do not take their shape; none without ``base``, the folder where paths start."""
    node = root.at((*DATASET, "npz"))
    if base is None or node is None or not isinstance(node.value, str):
        return
    file = regular_file.resolve_path(node.value, base)
    try:
        shapes = npz_file.shapes(file)
        splits = split_keys(npz_file.names(file), file)
    except (npz_file.BadNpz, DataError):
        return  # told where the data is opened, with what to do
    if "" in splits:
        return  # divided into train and test when it is read
    yield from _check_layout(root, splits, shapes)
    for part, default in (("calibrate", CalibrateSpec().split), ("evaluate", EvaluateSpec().split)):
        yield from _check_part(root, part, default, splits, shapes)
    yield from _check_models(root, splits, shapes, base)


def lacks_labels(data: DataSpec, base: File) -> bool:
    """Whether the evaluation examples are known to have no labels before they are read: an ``.npz`` file says it."""
    if data.loader != "npz":
        return False
    file = regular_file.resolve_path(str(data.value), base)
    try:
        splits = split_keys(npz_file.names(file), file)
    except (npz_file.BadNpz, DataError):
        return False
    keys = splits.get("") or splits.get(data.evaluate.split)
    return keys is not None and keys.labels is None


def _check_part(
    root: Node, part: str, default: str, splits: Mapping[str, Keys], shapes: Mapping[str, Shape]
) -> Iterator[Problem]:
    path: Path = ("data", part, "split")
    split_node, samples = root.at(path), root.at((*path[:-1], "samples"))
    split = default if split_node is None else split_node.value
    if not isinstance(split, str) or split not in splits:
        if isinstance(split, str) and split.strip():
            problem = f"no split '{split}'; the file has: {', '.join(sorted(splits))}"
            yield list(root.walk(path))[-1][1].mark.problem(problem, path_text(path))
        return
    shape = shapes.get(splits[split].inputs[0], ())
    if shape and samples is not None and type(samples.value) is int and samples.value > shape[0]:
        problem = f"{samples.value} samples of split '{split}', which has {shape[0]}; ask for at most that"
        yield samples.mark.problem(problem, path_text((*path[:-1], "samples")))


def _check_layout(root: Node, splits: Mapping[str, Keys], shapes: Mapping[str, Shape]) -> Iterator[Problem]:
    node = root.at((*DATASET, "stored_layout"))
    sides = None if node is None else DIMENSIONS.get(str(node.value))
    if node is None or sides is None:
        return
    for name in (name for keys in splits.values() for name in keys.inputs):
        if name in shapes and len(shapes[name]) != sides:
            problem = f"'{node.value}' has {sides} dimensions, {name} has the shape {list(shapes[name])}"
            yield node.mark.problem(problem, path_text((*DATASET, "stored_layout")))
            return


def _check_models(root: Node, splits: Mapping[str, Keys], shapes: Mapping[str, Shape], base: File) -> Iterator[Problem]:
    """Each ONNX source whose inputs are of another shape than the examples."""
    layout = root.at((*DATASET, "stored_layout"))
    split = next((splits[name] for name in ("test", "train") if name in splits), next(iter(splits.values())))
    examples = [_turn(shapes.get(name), "as-is" if layout is None else str(layout.value)) for name in split.inputs]
    models = root.at(("models",))
    for index in range(len(models.value) if models is not None and isinstance(models.value, list) else 0):
        path: Path = ("models", index, "source", "onnx")
        node = root.at(path)
        if node is None or not isinstance(node.value, str) or root.at(("models", index, "inputs")) is not None:
            continue
        problem = _explain_misfit(regular_file.resolve_path(node.value, base), split.inputs, examples)
        if problem is not None:
            yield node.mark.problem(problem, path_text(path))


def _turn(shape: Shape | None, layout: str) -> Shape | None:
    """The shape as the network is given it; None where it is not known."""
    if shape is None or layout not in ("nhwc", "hw") or len(shape) != DIMENSIONS[layout]:
        return shape
    return (shape[0], shape[3], shape[1], shape[2]) if layout == "nhwc" else (shape[0], 1, *shape[1:])


def _explain_misfit(file: File, names: tuple[str, ...], examples: list[Shape | None]) -> str | None:
    from qbench.quant.artifacts import onnx_check

    if regular_file.explain_unusable(file) is not None or file.stat().st_size > LARGEST_ONNX:
        return None
    try:
        graph = onnx_check.load(file, weights=False, valid=False).graph
    except ModelError:
        return None  # told where the model is loaded
    constants = {tensor.name for tensor in graph.initializer}
    inputs = [value for value in graph.input if value.name not in constants]
    if len(inputs) != len(names):
        takes = ", ".join(value.name for value in inputs)
        return f"the network takes {len(inputs)} inputs ({takes}), the data has {len(names)}: {', '.join(names)}"
    for value, name, example in zip(inputs, names, examples, strict=True):
        sides = _sides(value)
        fits = example is None or len(sides) == len(example)
        if example is not None and fits:
            fits = all(side in (None, there) for side, there in zip(sides[1:], example[1:], strict=True))
        if sides and not fits:
            expected = ", ".join("?" if side is None else str(side) for side in ("n", *sides[1:]))
            has = ", ".join(map(str, ("n", *(example or ())[1:])))
            return f"its input {value.name} is [{expected}], examples ({name}) are [{has}]"
    return None


def _sides(value: Any) -> list[int | None]:
    """The sides of an ONNX input; None for one that is left open."""
    dimensions = value.type.tensor_type.shape.dim
    return [side.dim_value if side.HasField("dim_value") else None for side in dimensions]
