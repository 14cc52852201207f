"""What goes into a suite: models (built in or your own) and the data set with its splits.

Docstrings and descriptions go to the JSON Schema that editors read.
"""

from __future__ import annotations

from pathlib import Path, PurePath
from typing import Annotated, Any, Literal

from pydantic import (
    BeforeValidator,
    ConfigDict,
    Field,
    PlainValidator,
    StrictInt,
    StrictStr,
    ValidationInfo,
    WithJsonSchema,
    model_validator,
)

from qbench import registry
from qbench.files import regular_file
from qbench.models.base import InputForm, ModelReference
from qbench.models.postprocess import Postprocess
from qbench.suite.int8_files import Int8Files
from qbench.suite.types import (
    Count,
    ModelName,
    Positive,
    PythonTarget,
    Section,
    Seed,
    Text,
    Whole,
    Yes,
    known,
    near,
    shown,
    wrong,
)

SOURCES = ("python", "onnx", "torchscript")
WEIGHT_SUFFIXES = (".safetensors", ".pt", ".pth")
NAME_LOADERS = ("digits",)  # nothing stands behind its name
# What needs a path behind its name: `dataset: {npz: file.npz}`. A package's own loader may need none.
PATH_LOADERS = (
    *("npz", "idx", "image-folder", "masks", "coco", "text-lines", "retrieval", "texts", "csv", "pairs"),
    *("huggingface", "python"),
)


class SourceSpec(Section):
    """Where a model of your own comes from: exactly one of python, onnx and torchscript."""

    model_config = ConfigDict(json_schema_extra={"oneOf": [{"required": [kind]} for kind in SOURCES]})

    python: PythonTarget | None = Field(None, description="`file.py:function`; calling it gives the nn.Module.")
    args: dict[str, Any] = Field({}, description="Keyword arguments for the Python function.")
    onnx: Text | None = Field(None, description="An ONNX file.")
    torchscript: Text | None = Field(None, description="A TorchScript file saved with torch.jit.save.")

    @model_validator(mode="after")
    def _one_kind(self) -> SourceSpec:
        given = self._given()
        if len(given) != 1:
            named = " and ".join(given) or "none of them"
            raise wrong(f"expected exactly one of python, onnx and torchscript, got {named}")
        if self.args and self.python is None:
            raise wrong(f"only a python source takes arguments; remove args or {given[0]}", "args")
        return self

    def _given(self) -> list[str]:
        return [kind for kind in SOURCES if getattr(self, kind) is not None]

    @property
    def loader(self) -> str:
        """The registry's name of the source: python, onnx or torchscript."""
        return self._given()[0]

    @property
    def file(self) -> str:
        """The path as written, without the function's name."""
        value: str = getattr(self, self.loader)
        return value.rpartition(":")[0] if self.loader == "python" else value

    @property
    def attribute(self) -> str | None:
        """The name of the Python function, None for a file."""
        return self.python.rpartition(":")[2] if self.python else None


def _constant(value: Any) -> Any:
    """A number, true or false, null, or nested lists of numbers of one shape."""
    if value is None:
        return value
    items = value if isinstance(value, list) else [value]
    if not items or not all(isinstance(item, list | bool | int | float) for item in items):
        raise wrong(f"expected a number, true, false or a list of them, got {shown(value)}")
    if isinstance(value, list):
        for item in value:
            if isinstance(item, list) != isinstance(value[0], list) or len(_items(item)) != len(_items(value[0])):
                raise wrong("expected lists of one length at each level, got lists of different lengths")
            _constant(item)
    return value


def _items(value: Any) -> list[Any]:
    return value if isinstance(value, list) else []


_CONSTANT_SCHEMA = {"anyOf": [{"type": ["number", "boolean", "null"]}, {"type": "array", "minItems": 1}]}
Axis = Annotated[StrictInt, Field(ge=0, le=7)]


class InputSpec(Section):
    """How an input of your own network is given, where that is not one example after the other along axis 0."""

    model_config = ConfigDict(json_schema_extra={"oneOf": [{"required": ["axis"]}, {"required": ["constant"]}]})

    axis: Axis | None = Field(None, description="The axis along which its examples lie in the network's own shape.")
    constant: Annotated[
        Any,
        PlainValidator(_constant),
        WithJsonSchema(_CONSTANT_SCHEMA),
        Field(description="What it gets in every call (a number, lists, null); the data has no array for it."),
    ] = None

    @model_validator(mode="after")
    def _one_of_both(self) -> InputSpec:
        if (self.axis is None) != self.is_constant:
            raise wrong(f"expected either axis or constant, got {'none' if self.axis is None else 'both'} of them")
        return self

    @property
    def is_constant(self) -> bool:
        """Whether the key is given, be it null."""
        return "constant" in self.model_fields_set

    def make_form(self) -> InputForm:
        """As the stages take it."""
        return InputForm(constant=self.constant) if self.is_constant else InputForm(axis=self.axis or 0)


class OutputSpec(Section):
    """Which of a network's outputs counts."""

    name: Text | Whole | None = Field(None, description="Its name, or its position from 0; null takes the first.")
    axis: Axis = Field(0, description="The axis along which its examples lie.")


def _output_shorthand(value: Any) -> Any:
    is_name = isinstance(value, str | int) and not isinstance(value, bool)
    return {"name": value} if is_name else value


OutputItem = Annotated[
    OutputSpec, BeforeValidator(_output_shorthand, json_schema_input_type=StrictStr | StrictInt | OutputSpec)
]


class PostprocessSpec(Section):
    """What makes answers of a network's outputs, which the metric is given: boxes, texts."""

    python: PythonTarget = Field(
        description="`file.py:function`, called with the outputs of a batch (a dict by name where there are several); "
        "it returns an array, or a list of one for each example."
    )
    timed: Yes = Field(False, description="It belongs to a call: latencies have it in them.")


class TrainSpec(Section):
    """How a built-in is trained, where that differs from its own way."""

    epochs: Count | None = Field(None, description="Passes over the training split.")
    learning_rate: Positive | None = Field(None, description="The highest learning rate.")
    seed: Seed | None = Field(None, description="Seed of the initial weights and of the order of the examples.")


class ModelSpec(Section):
    """One model: a built-in by name, or your own by source."""

    name: ModelName = Field(description="The built-in's name, or the name that your own model gets in every case.")
    source: SourceSpec | None = Field(None, description="Where a model of your own comes from.")
    weights: Text | None = Field(
        None, description="A state dict for the module, .safetensors or .pt/.pth (read with weights_only)."
    )
    int8: Int8Files = Field(
        (),
        description="Your own int8 file (or several), ONNX, TorchScript or OpenVINO, compared with this model as a "
        "variant of its own: a path, `{file: path, mode: dynamic}`, `{file: path, engine: fbgemm}`, a list of these, "
        "or a mapping of names to them.",
    )
    inputs: dict[str, InputSpec] = Field(
        {},
        description="Of a network of your own, by the input's name: `{axis: 1}` where its examples do not lie along "
        "axis 0, `{constant: 16000}` where it is the same in every call.",
    )
    output: OutputItem | None = Field(
        None,
        description="Of a network of your own with several outputs: name or position of the one that counts.",
    )
    postprocess: PostprocessSpec | None = Field(
        None,
        description="Of a network of your own: the function that makes answers of its outputs behind it (decoding, "
        "suppression), as the metric takes them.",
    )
    train: TrainSpec | None = Field(None, description="For a built-in that qbench trains, as `qbench train` does.")

    @model_validator(mode="after")
    def _can_be_found(self, info: ValidationInfo) -> ModelSpec:
        if self.source is None:
            options = known(info).of("model")
            if self.name not in options:
                hint = "; a model of your own needs a source"
                raise wrong(registry.unknown("model", self.name, options) + hint, "name")
        elif self.weights is not None and self.source.loader != "python":
            raise wrong(f"an {self.source.loader} file holds its own weights; remove this key", "weights")
        of_own = {"inputs": bool(self.inputs), "output": self.output is not None}
        of_own["postprocess"] = self.postprocess is not None
        if self.source is None and any(of_own.values()):
            key = next(key for key, given in of_own.items() if given)
            raise wrong("only a model of your own is called in another way; remove this key", key)
        if self.train is not None and (self.source is not None or self.weights is not None):
            raise wrong("only a built-in without weights is trained; remove this key, or source and weights", "train")
        if self.train is not None and registry.load("model", self.name).training is None:
            raise wrong(f"{self.name} comes with its weights and is not trained; remove this key", "train")
        if self.weights is not None and PurePath(self.weights).suffix not in WEIGHT_SUFFIXES:
            raise wrong(
                f"expected a .safetensors, .pt or .pth file, got {shown(self.weights)}; "
                "other files may hold a pickle, which runs code when it is read",
                "weights",
            )
        return self

    def reference(self, base: Path) -> ModelReference:
        """What the later stages take, with absolute paths."""

        def absolute(path: str) -> Path:
            return regular_file.resolve_path(path, base)

        source = self.source
        return ModelReference(
            name=self.name,
            source=source.loader if source else None,
            path=absolute(source.file) if source else None,
            attribute=source.attribute if source else None,
            args=dict(source.args) if source else {},
            weights=absolute(self.weights) if self.weights else None,
            training=self.train.model_dump(exclude_none=True) if self.train else {},
            int8=tuple(file.under(base) for file in self.int8),
            inputs={name: form.make_form() for name, form in self.inputs.items()},
            output=self.output.name if self.output else None,
            output_axis=self.output.axis if self.output else 0,
            own_postprocess=self._find_postprocess(base),
        )

    def _find_postprocess(self, base: Path) -> Postprocess | None:
        if self.postprocess is None:
            return None
        file, _, attribute = self.postprocess.python.rpartition(":")
        return Postprocess(
            file=regular_file.resolve_path(file, base), attribute=attribute, timed=self.postprocess.timed
        )


def _model_shorthand(value: Any) -> Any:
    return {"name": value} if isinstance(value, str) else value


ModelItem = Annotated[ModelSpec, BeforeValidator(_model_shorthand, json_schema_input_type=ModelName | ModelSpec)]


class CalibrateSpec(Section):
    """The examples that static quantization calibrates on; never those of the evaluation."""

    split: Text = Field("train", description="A split of the data set.")
    samples: Count = Field(256, description="How many examples to draw; left out, a smaller split is taken whole.")
    seed: Seed = Field(0, description="Seed of the draw.")
    seeds: Count = Field(
        1,
        description="How many subsets to draw, of seed, seed + 1 and so on: static variants are built and evaluated "
        "with each, so that the spread shows; what is measured and shipped is the first.",
    )


class EvaluateSpec(Section):
    """The examples that predictions and scores are made on."""

    split: Text = Field("test", description="A split of the data set.")
    samples: Count | None = Field(None, description="How many examples to draw; null takes the whole split.")
    at_most: Count | None = Field(
        None, description="Where there are more than that, only so many of them are drawn; null: no limit."
    )
    seed: Seed = Field(0, description="Seed of the draw.")


def _dataset(value: Any, info: ValidationInfo) -> str | dict[str, Any]:
    """A loader's name, or a mapping with exactly one loader as a key."""
    loaders = known(info).of("dataset")
    if isinstance(value, str):
        if value not in loaders:
            raise wrong(registry.unknown("dataset", value, loaders))
        if value in PATH_LOADERS:
            raise wrong(f"'{value}' needs a path; write {{{value}: path}}")
        return value
    if not isinstance(value, dict):
        raise wrong(f"expected a data set's name or a mapping such as {{npz: file.npz}}, got {shown(value)}")
    given = [key for key in value if key in loaders]
    if len(given) > 1:
        raise wrong(f"expected one data set, got {' and '.join(given)}")
    if not given:
        hint = next((text for text in (near(key, loaders) for key in value) if text), "")
        raise wrong(f"none of the keys is a data set{hint or ';'} available: {', '.join(loaders)}")
    return _dataset_value(given[0], value)


def _dataset_value(loader: str, value: dict[str, Any]) -> dict[str, Any]:
    target = value[loader]
    if loader in PATH_LOADERS and (not isinstance(target, str) or not target.strip()):
        raise wrong(f"expected a path, got {shown(target)}", loader)
    if loader in NAME_LOADERS and target is not None:
        raise wrong(f"takes nothing, got {shown(target)}; write {{dataset: {loader}}}", loader)
    if loader == "python":
        file, _, attribute = str(target).rpartition(":")
        if not file or not attribute.isidentifier():
            raise wrong(f"expected file.py:function, got {shown(target)}", loader)
    return value


_PLAIN_LOADERS = sorted(set(registry.BUILT_IN["dataset"]) - set(PATH_LOADERS))
_DATASET_SCHEMA = {
    "anyOf": [
        {"enum": _PLAIN_LOADERS},
        {"type": "string"},
        {"type": "object", "minProperties": 1, "properties": {name: {"type": "string"} for name in PATH_LOADERS}},
    ]
}


class DataSpec(Section):
    """The data set, and which of its examples serve calibration and evaluation."""

    dataset: Annotated[
        str | dict[str, Any],
        PlainValidator(_dataset),
        WithJsonSchema(_DATASET_SCHEMA),
        Field(
            description="A built-in's name (`digits`), or one loader with its value and options: `{npz: file}`, "
            "`{image-folder: dir, size: 32}`, `{masks: dir, classes: 21}`, "
            "`{coco: instances.json, size: 640}`, `{text-lines: lines.csv}`, `{retrieval: dir}`, `{texts: dir}`, "
            "`{idx: path}`, `{csv: texts.csv}`, `{pairs: sts.csv}`, `{huggingface: path or name}`, "
            "`{python: file.py:function}`.",
        ),
    ]
    calibrate: CalibrateSpec = Field(CalibrateSpec(), description="Examples for calibration.")
    evaluate: EvaluateSpec = Field(EvaluateSpec(), description="Examples for predictions and scores.")
    overlap: Literal["error", "allow"] = Field(
        "error",
        description="What to do where an evaluation example (by its content) is a calibration or training example, "
        "too: error; allow says that it is meant, and every record tells how many.",
    )

    @property
    def loader(self) -> str:
        """The registry's name of the data set."""
        if isinstance(self.dataset, str):
            return self.dataset
        loaders = registry.names("dataset")
        return next(key for key in self.dataset if key in loaders)

    @property
    def value(self) -> Any:
        """What stands behind the loader's name; None for a plain name."""
        return None if isinstance(self.dataset, str) else self.dataset[self.loader]

    @property
    def options(self) -> dict[str, Any]:
        """The keys beside the loader."""
        if isinstance(self.dataset, str):
            return {}
        return {key: value for key, value in self.dataset.items() if key != self.loader}
