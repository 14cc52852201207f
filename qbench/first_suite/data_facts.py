"""What a suite must say of data, read from what lies there: an image folder, arrays, texts, a saved data set."""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from qbench import registry
from qbench.errors import UsageError
from qbench.first_suite.document_facts import METRIC, explain_no_logits, has_documents
from qbench.first_suite.line_facts import choose_line_options, has_lines, write_reading
from qbench.first_suite.model_facts import InputFacts, ModelFacts, quote, relative
from qbench.first_suite.scene_facts import choose_mask_options, find_decoding, has_boxes, has_masks

_INFO = "dataset_info.json"
_SAVED = (_INFO, "dataset_dict.json", "state.json")
_TRAIN, _TEST = ("train", "training"), ("test", "val", "valid", "validation", "eval")
_IMAGENET = ([0.485, 0.456, 0.406], [0.229, 0.224, 0.225])
_NORMALIZED = "Were pixels normalized by ImageNet's mean and std in training (yes, no)"
SAMPLES = 256
Ask = Callable[[str, str], str]  # a question and its default -> the answer


@dataclass(frozen=True, kw_only=True)
class DataFacts:
    """A data set's ``loader`` with its ``value`` (None: it takes none) and ``options``, as a suite names them; its
    splits, how many examples calibrate (None: nobody counted them), whether it has labels, and the ``metric`` of these;
    ``notes``: what was assumed, a comment each. ``code``: name and text of the file that has to be written, Python or
    names of classes, None where none is; ``postprocess``: its function that makes answers of the model's outputs.
    ``against_fp32``: why labels cannot judge, so that outputs are held against fp32's.
    """

    loader: str
    value: str | None = None
    options: Mapping[str, Any] = field(default_factory=dict)
    train: str = "train"
    test: str = "test"
    samples: int | None = None
    labelled: bool = False
    notes: tuple[str, ...] = ()
    code: tuple[str, str] | None = None
    metric: str = "top1"
    postprocess: str | None = None
    against_fp32: str | None = None

    @property
    def dataset(self) -> str:
        """As the suite writes it."""
        if self.value is None:
            return self.loader
        options = (f"{key}: {_value(option)}" for key, option in self.options.items())
        return f"{{{', '.join((f'{self.loader}: {quote(self.value)}', *options))}}}"

    def open(self, folder: Path) -> Any:
        """The data set, as a suite in ``folder`` opens it, also where ``code`` is not written yet. Raises
        ``DataError``."""
        options = dict(self.options)
        if self.code is not None and options.get("classes") == self.code[0]:
            options["classes"] = self.code[1].splitlines()
        return registry.load("dataset", self.loader)(self.value, base=folder, options=options)


def describe_data(text: str | None, model: ModelFacts, folder: Path, ask: Ask | None = None) -> DataFacts:
    """What a suite must say of a folder, a file, ``file.py:function`` or a built-in data set's name; None: of random
    inputs. ``ask`` is asked what nothing tells. Raises ``UsageError`` for what is none of these, and ``DataError`` as
    the data set does."""
    if text is None:
        return _make_random(model)
    path = Path(text)
    if has_boxes(path):
        return _describe_boxes(path, model, folder)
    if path.is_dir() and has_masks(path):
        return _describe_masks(path, model, folder, ask)
    if path.exists() and has_documents(path, model):
        return _describe_documents(path, model, folder)
    if path.is_dir():
        saved = any((path / name).exists() for name in _SAVED)
        return _describe_saved(path, model, folder, ask) if saved else _describe_images(path, model, folder, ask)
    if path.is_file() and path.suffix.lower() == ".npz":
        return _describe_arrays(path, model, folder)
    if path.is_file() and path.suffix.lower() == ".csv":
        return _describe_lines(path, model, folder) if has_lines(path) else _describe_texts(path, model, folder)
    if ".py:" in text:
        file, _, function = text.rpartition(":")
        if not Path(file).is_file():
            raise UsageError(f"{file}: no such file")
        return DataFacts(loader="python", value=f"{relative(Path(file), folder)}:{function}")
    if text in registry.names("dataset"):
        return DataFacts(loader=text, labelled=True)
    what = (
        "an image folder, images with masks, COCO's instances, an .npz or .csv file, documents (.txt, .jsonl), a saved "
        "Hugging Face data set, "
        "file.py:function, or a built-in name"
    )
    raise UsageError(f"{text}: {'no data that is known' if path.exists() else 'no such file'}; data are {what}")


def _pick_splits(splits: tuple[str, ...], where: Path) -> tuple[str, str, tuple[str, ...]]:
    """(the split to calibrate on, the one to evaluate on, what was assumed)."""
    train = next((name for name in splits if name.lower() in _TRAIN), None)
    test = next((name for name in splits if name.lower() in _TEST), None)
    if train and test:
        return train, test, ()
    if len(splits) < 2:
        raise UsageError(
            f"{where}: it has one split, {splits[0]}; calibration and evaluation need two: name them train and test, "
            "or put all examples side by side, and they are split"
        )
    train, test = train or next(name for name in splits if name != test), test or splits[-1]
    if train == test:
        test = splits[0]
    return train, test, (f"of the splits {', '.join(splits)} these two were taken",)


def _describe_opened(
    loader: str, path: Path, folder: Path, options: dict[str, Any], notes: Sequence[str]
) -> tuple[DataFacts, Any]:
    """(the facts of a data set, whose labels are classes where it knows how many there are; the data set)."""
    facts = DataFacts(loader=loader, value=relative(path, folder), options=options)
    opened = facts.open(folder)
    train, test, assumed = _pick_splits(opened.splits, path)
    described = replace(
        facts,
        train=train,
        test=test,
        samples=min(SAMPLES, opened.count(train)),
        labelled=opened.classes is not None,
        notes=(*notes, *assumed),
    )
    return described, opened


def _choose_image_options(model: ModelFacts, ask: Ask | None) -> tuple[dict[str, Any], list[str]]:
    """The options with which images become what the model takes, and what was assumed."""
    image = next((entry.image for entry in model.inputs if entry.image), None)
    options: dict[str, Any] = {}
    notes = []
    if image is not None:
        channels, height, width, last = image
        if height and width:
            options["size"] = height if height == width else [height, width]
        else:
            options["size"] = 224
            notes.append("the file leaves its size free: 224 was assumed")
        options |= {"channels": channels} if channels != 3 else {}
        options |= {"layout": "nhwc"} if last else {}
    else:
        options["size"] = 224
        notes.append("the model does not tell its size: 224 was assumed")
        channels = 3
    if channels == 3:
        imagenet = ask is None or ask(_NORMALIZED, "yes").lower() in ("y", "yes")
        options |= {"mean": _IMAGENET[0], "std": _IMAGENET[1]} if imagenet else {}
        if ask is None:
            notes.append("mean and std are ImageNet's: write what training used")
        elif not imagenet:
            notes.append("pixels are 0 to 1: write scale, mean and std as in training")
    return options, notes


def _describe_images(path: Path, model: ModelFacts, folder: Path, ask: Ask | None) -> DataFacts:
    options, notes = _choose_image_options(model, ask)
    facts, opened = _describe_opened("image-folder", path, folder, options, notes)
    outputs = model.outputs
    if opened.classes is None or outputs is None or outputs == opened.classes:
        return facts
    if all(name.isdigit() and int(name) < outputs for name in opened.labels):
        return replace(facts, options={**options, "classes": outputs})
    return _name_outputs(facts, path, tuple(opened.labels), outputs, model.name)


def _name_outputs(facts: DataFacts, path: Path, names: tuple[str, ...], outputs: int, model: str) -> DataFacts:
    """The facts of folders that are fewer than the model's outputs: which output each stands for a person has to say,
    in a file that is written; until then outputs are held against fp32's."""
    unnamed = range(len(names), outputs)
    if not unnamed:
        raise UsageError(
            f"{path}: {len(names)} folders of classes, and an example has {outputs} output(s): leave folders out, or "
            "give a function file.py:load that returns inputs and labels (qbench/guide/data.md)"
        )
    file = f"{model.replace('-', '_').replace('.', '_')}_classes.txt"
    lines = [*names, *(f"output {number}" for number in unnamed)]
    why = (
        f"{len(names)} folders of classes, {outputs} outputs: write their names into {file} in the order of the "
        "outputs, then metric: top1, and labels judge"
    )
    return replace(
        facts,
        options={**facts.options, "classes": file},
        code=(file, "\n".join(lines) + "\n"),
        labelled=False,
        against_fp32=why,
    )


def _describe_masks(path: Path, model: ModelFacts, folder: Path, ask: Ask | None) -> DataFacts:
    options, notes = _choose_image_options(model, ask)
    options |= choose_mask_options(model)
    facts, _ = _describe_opened("masks", path, folder, options, notes)
    return replace(facts, labelled=True, metric="miou")


def _describe_boxes(path: Path, model: ModelFacts, folder: Path) -> DataFacts:
    image = next((entry.image for entry in model.inputs if entry.image), None)
    height, width = (image[1], image[2]) if image is not None else (None, None)
    size: Any = 640 if not height or not width else height if height == width else [height, width]
    options: dict[str, Any] = {"size": size}
    notes = ["pixels are 0 to 1, in a letterbox: write scale, mean, std and fit as in training"]
    facts, opened = _describe_opened("coco", path, folder, options, notes)
    decoding = find_decoding(model, opened.classes)
    if not decoding.known:
        why = "write `postprocess` beside the model (qbench/guide/models.md) and metric: map, and boxes are judged"
        return replace(facts, labelled=False, against_fp32=why)
    return replace(
        facts,
        labelled=True,
        metric="map",
        notes=(*facts.notes, *decoding.notes),
        code=decoding.code,
        postprocess=None if decoding.code is None else f"{decoding.code[0]}:decode",
    )


def _describe_lines(path: Path, model: ModelFacts, folder: Path) -> DataFacts:
    options, notes = choose_line_options(model)
    facts, _ = _describe_opened("text-lines", path, folder, dict(options), notes)
    code = write_reading(model)
    if code is None:
        why = "write `postprocess` beside the model (qbench/guide/data.md) and metric: cer, and texts are judged"
        return replace(facts, against_fp32=why)
    taken = f"its outputs were taken as (n, steps, {model.letters} letters and a blank); {code[0]}:read makes texts"
    return replace(
        facts,
        labelled=True,
        metric="cer",
        notes=(*facts.notes, taken),
        code=code,
        postprocess=f"{code[0]}:read",
    )


def _describe_arrays(path: Path, model: ModelFacts, folder: Path) -> DataFacts:
    options: dict[str, Any] = {}
    if model.inputs and not any(entry.is_float for entry in model.inputs):
        options["to_float"] = False
    facts, opened = _describe_opened("npz", path, folder, options, [])
    examples, notes = opened.sample(facts.train, 1, 0), [*facts.notes]
    if not options and examples.inputs[0].dtype.kind == "u":
        options["scale"] = "1/255"
        notes.append("bytes become 0 to 1: write scale, mean and std as in training")
    return replace(
        facts,
        options=options,
        labelled=examples.labels is not None and examples.labels.dtype.kind in "iu",
        notes=tuple(notes),
    )


def _describe_texts(path: Path, model: ModelFacts, folder: Path, loader: str = "csv", **columns: str) -> DataFacts:
    tokenizer = _find_tokenizer(path, folder)
    options: dict[str, Any] = {**columns, "tokenizer": relative(tokenizer, folder), **_token_options(model)}
    cut = "into windows of" if loader == "texts" else "or padded to"
    notes = [] if "length" in options else [f"texts are cut {cut} 128 tokens: write length as in training"]
    return _describe_opened(loader, path, folder, options, notes)[0]


def _describe_documents(path: Path, model: ModelFacts, folder: Path) -> DataFacts:
    facts = _describe_texts(path, model, folder, "texts")
    if (why := explain_no_logits(model)) is not None:
        return replace(facts, against_fp32=why)
    taken = "outputs were taken as logits (n, length, vocabulary) of the token that follows"
    return replace(facts, labelled=True, metric=METRIC, notes=(*facts.notes, taken))


def _find_tokenizer(path: Path, folder: Path) -> Path:
    places = dict.fromkeys((path.parent, folder, Path(), *([path] if path.is_dir() else [])))
    for place in places:
        if (place / "tokenizer.json").is_file():
            return place / "tokenizer.json"
    raise UsageError(f"{path}: texts need the model's tokenizer: put its tokenizer.json beside it")


def _token_options(model: ModelFacts) -> dict[str, Any]:
    """Which of a tokenizer's arrays the model takes, by the names of its inputs, and their length where it is fixed."""
    kinds = {"type": "types", "mask": "mask", "ids": "ids"}  # token_type_ids are types
    tokens = []
    for entry in model.inputs:
        tokens += [kind for word, kind in kinds.items() if word in entry.name.lower()][:1]
    length = next((entry.sizes[1] for entry in model.inputs if len(entry.sizes) == 2 and entry.sizes[1]), None)
    return {**({"length": length} if length else {}), **({"tokens": tokens} if tokens else {})}


def _describe_saved(path: Path, model: ModelFacts, folder: Path, ask: Ask | None) -> DataFacts:
    columns = _read_columns(path)
    texts = [name for name, kind in columns.items() if kind == "string"]
    if "Image" in columns.values():
        options, notes = _choose_image_options(model, ask)
        return _describe_opened("huggingface", path, folder, options, notes)[0]
    if len(texts) == 1 or "text" in texts:
        column = "text" if "text" in texts else texts[0]
        return _describe_texts(path, model, folder, "huggingface", text=column)
    return _describe_opened("huggingface", path, folder, {}, [])[0]


def _read_columns(path: Path) -> dict[str, str]:
    """What each column of a saved data set holds, by what lies beside its first split: the type of its values, or
    what the library calls it (Image, ClassLabel)."""
    file = next((info for info in (path / _INFO, *sorted(path.glob(f"*/{_INFO}"))) if info.is_file()), None)
    if file is None:
        return {}
    try:
        features = json.loads(file.read_text(encoding="utf-8"))["features"]
        return {name: str(feature.get("dtype") or feature.get("_type")) for name, feature in features.items()}
    except (ValueError, KeyError, AttributeError, TypeError):
        return {}  # the library says what is wrong with it


def _make_random(model: ModelFacts) -> DataFacts:
    if not model.inputs:
        raise UsageError(
            "without --data the inputs are random, and only an ONNX file tells their shapes: give --data, or a "
            "function file.py:load that returns inputs (qbench/guide/data.md)"
        )
    name = f"{model.name.replace('-', '_').replace('.', '_')}_data.py"
    return DataFacts(
        loader="python",
        value=f"{name}:load",
        options={} if all(entry.is_float for entry in model.inputs if entry.axis is not None) else {"to_float": False},
        samples=32,
        notes=("random inputs: latency and size are real, accuracy is not: return your own in the function",),
        code=(name, _write_random(model.inputs)),
    )


def _write_random(inputs: tuple[InputFacts, ...]) -> str:
    lines = []
    for entry in inputs:
        if entry.axis is None:
            continue  # the suite says its value
        sizes = ", ".join(map(str, entry.example))
        shape = f"(count, {sizes})" if sizes else "count"
        draw = f"rng.standard_normal({shape}, dtype=np.float32)"
        if not entry.is_float:
            typed = f', dtype="{entry.dtype}"' if re.fullmatch(r"u?int\d+|bool", entry.dtype or "") else ""
            draw = f"rng.integers(0, 2, {shape}{typed})"
        lines.append(f"        {draw},  # {entry.name}, {entry.dtype}")
    return (
        '"""Random inputs: put your own in their place, and return labels where you have them."""\n\n'
        "import numpy as np\n\n\n"
        "def load(split):\n"
        "    count = 64\n"
        '    rng = np.random.default_rng(0 if split == "train" else 1)\n'
        "    inputs = (\n" + "\n".join(lines) + "\n    )\n"
        "    return inputs, None\n\n\n"
        'load.note = "the inputs are random: accuracy says nothing of your data"  # goes with them\n'
    )


def _value(option: Any) -> str:
    if isinstance(option, bool):
        return "true" if option else "false"
    return f"[{', '.join(map(str, option))}]" if isinstance(option, list) else str(option)
