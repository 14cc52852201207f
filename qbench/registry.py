"""Plug-ins by kind and name, without importing them: built-ins here, others by entry points.

A built-in is one line in ``BUILT_IN``. A package of your own adds one by an entry point in the group
``qbench.<kind>``, for example ``[project.entry-points."qbench.backend"] mine = "my_package:BACKEND"``.
"""

from __future__ import annotations

import ast
import difflib
import functools
import importlib
import importlib.metadata
import importlib.util
import os
import re
import sys
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from qbench.errors import UnknownName, UsageError

BUILT_IN: dict[str, dict[str, str]] = {
    "model": {
        "digits-cnn": "qbench.models.digits_cnn:MODEL",
        "digits-lstm": "qbench.models.digits_lstm:MODEL",
        "efficientnet-lite0": "qbench.models.efficientnet_lite:LITE0",
        "efficientnet-lite1": "qbench.models.efficientnet_lite:LITE1",
        "efficientnet-lite2": "qbench.models.efficientnet_lite:LITE2",
        "magika": "qbench.models.magika:MODEL",
        "minilm": "qbench.models.minilm:ENCODER",
        "minilm-sentiment": "qbench.models.minilm:MODEL",
        "mobilenet-small": "qbench.models.mobilenet_small:MODEL",
        "ppocr-detector": "qbench.models.ppocr:DETECTOR",
        "ppocr-recognizer": "qbench.models.ppocr:RECOGNIZER",
        "reviews-decoder": "qbench.models.reviews_decoder:MODEL",
        "resnet20": "qbench.models.resnet20:MODEL",
        "shapes-detector": "qbench.models.shapes_detector:MODEL",
        "shapes-unet": "qbench.models.shapes_unet:MODEL",
    },
    "source": {
        "python": "qbench.models.python:load",
        "onnx": "qbench.models.onnx:load",
        "torchscript": "qbench.models.torchscript:load",
    },
    "dataset": {
        "digits": "qbench.datasets.digits:open_dataset",
        "mnist": "qbench.datasets.mnist:open_mnist",
        "fashion-mnist": "qbench.datasets.mnist:open_fashion_mnist",
        "cifar-10": "qbench.datasets.cifar10:open_dataset",
        "imagenet": "qbench.datasets.photos:open_dataset",
        "npz": "qbench.datasets.npz:open_dataset",
        "image-folder": "qbench.datasets.image_folder:open_dataset",
        "masks": "qbench.datasets.masks:open_dataset",
        "coco": "qbench.datasets.coco:open_dataset",
        "shapes": "qbench.datasets.shapes:open_dataset",
        "text-lines": "qbench.datasets.text_lines:open_dataset",
        "rendered-text": "qbench.datasets.rendered_text:open_dataset",
        "retrieval": "qbench.datasets.retrieval:open_dataset",
        "docstrings": "qbench.datasets.docstrings:open_dataset",
        "texts": "qbench.datasets.texts:open_dataset",
        "film-reviews": "qbench.datasets.film_reviews:open_dataset",
        "idx": "qbench.datasets.idx:open_dataset",
        "csv": "qbench.datasets.csv_texts:open_dataset",
        "pairs": "qbench.datasets.pairs:open_dataset",
        "huggingface": "qbench.datasets.huggingface:open_dataset",
        "sentiment": "qbench.datasets.sentiment:open_dataset",
        "python": "qbench.datasets.python:open_dataset",
    },
    "metric": {
        "top1": "qbench.metrics.topk:TOP1",
        "top5": "qbench.metrics.topk:TOP5",
        "top1_agreement": "qbench.metrics.agreement:TOP1_AGREEMENT",
        "cosine": "qbench.metrics.agreement:COSINE",
        "sqnr": "qbench.metrics.agreement:SQNR",
        "kl": "qbench.metrics.agreement:KL",
        "balanced_accuracy": "qbench.metrics.classes:BALANCED_ACCURACY",
        "f1": "qbench.metrics.classes:F1",
        "precision": "qbench.metrics.classes:PRECISION",
        "recall": "qbench.metrics.classes:RECALL",
        "mae": "qbench.metrics.regression:MAE",
        "rmse": "qbench.metrics.regression:RMSE",
        "r2": "qbench.metrics.regression:R2",
        "spearman": "qbench.metrics.regression:SPEARMAN",
        "miou": "qbench.metrics.segmentation:MIOU",
        "pixel_accuracy": "qbench.metrics.segmentation:PIXEL_ACCURACY",
        "cer": "qbench.metrics.texts:CER",
        "wer": "qbench.metrics.texts:WER",
        "nll": "qbench.metrics.next_token:NLL",
        "token_flips": "qbench.metrics.next_token:TOKEN_FLIPS",
        "token_kl": "qbench.metrics.next_token:TOKEN_KL",
        "map": "qbench.metrics.detection:MAP",
        "ap50": "qbench.metrics.detection:AP50",
    },
    "backend": {
        "torch": "qbench.backends.torchscript:BACKEND",
        "fbgemm": "qbench.backends.torch_ao:FBGEMM",
        "x86": "qbench.backends.torch_ao:X86",
        "onednn": "qbench.backends.torch_ao:ONEDNN",
        "qnnpack": "qbench.backends.torch_ao:QNNPACK",
        "inductor": "qbench.backends.inductor:BACKEND",
        "onnxruntime": "qbench.backends.onnxruntime:BACKEND",
        "openvino": "qbench.backends.openvino:BACKEND",
        "executorch": "qbench.backends.executorch:BACKEND",
        "fake": "qbench.backends.fake:BACKEND",
    },
    "host": {
        "native": "qbench.hosts.native:HOST",
        "avx2": "qbench.hosts.limited:AVX2",
        "avx512": "qbench.hosts.limited:AVX512",
    },
    "cause": {
        "calibration-data": "qbench.explain.causes.calibration:CALIBRATION_DATA",
        "calibrator": "qbench.explain.causes.calibration:CALIBRATOR",
        "conversions": "qbench.explain.causes.layout:CONVERSIONS",
        "denormals": "qbench.explain.causes.machine:DENORMALS",
        "dynamic-activations": "qbench.explain.causes.kernels:DYNAMIC_ACTIVATIONS",
        "engine-kernels": "qbench.explain.causes.kernels:ENGINE_KERNELS",
        "few-levels": "qbench.explain.causes.calibration:FEW_LEVELS",
        "fixed-range": "qbench.explain.causes.layout:FIXED_RANGE",
        "framework-default": "qbench.explain.causes.origin:FRAMEWORK_DEFAULT",
        "joined-ranges": "qbench.explain.causes.layout:JOINED_RANGES",
        "kept-float": "qbench.explain.causes.layout:KEPT_FLOAT",
        "little-work": "qbench.explain.causes.machine:LITTLE_WORK",
        "mean-error": "qbench.explain.causes.weights:MEAN_ERROR",
        "memory-bound": "qbench.explain.causes.machine:MEMORY_BOUND",
        "older-instructions": "qbench.explain.causes.machine:OLDER_INSTRUCTIONS",
        "older-target": "qbench.explain.causes.machine:OLDER_TARGET",
        "overflowing-sums": "qbench.explain.causes.weights:OVERFLOWING_SUMS",
        "own-file": "qbench.explain.causes.origin:OWN_FILE",
        "page-faults": "qbench.explain.causes.machine:PAGE_FAULTS",
        "per-channel": "qbench.explain.causes.kernels:PER_CHANNEL",
        "per-tensor": "qbench.explain.causes.weights:PER_TENSOR",
        "sensitive-layers": "qbench.explain.causes.layout:SENSITIVE_LAYERS",
        "slower-in-int8": "qbench.explain.causes.kernels:SLOWER_IN_INT8",
        "small-for-amx": "qbench.explain.causes.machine:SMALL_FOR_AMX",
        "symmetric": "qbench.explain.causes.kernels:SYMMETRIC",
        "threads": "qbench.explain.causes.machine:THREADS",
        "uneven-channels": "qbench.explain.causes.weights:UNEVEN_CHANNELS",
        "unfused": "qbench.explain.causes.layout:UNFUSED",
        "unused-amx": "qbench.explain.causes.machine:UNUSED_AMX",
        "wider-steps": "qbench.explain.causes.weights:WIDER_STEPS",
    },
    "calibrator": {
        "minmax": "qbench.quant.calibrators.minmax:MinMax",
        "moving_average": "qbench.quant.calibrators.moving_average:MovingAverage",
        "histogram": "qbench.quant.calibrators.hfmg:SquaredErrorHistogram",
        "percentile": "qbench.quant.calibrators.percentile:Percentile",
        "entropy": "qbench.quant.calibrators.entropy:Entropy",
        "mse": "qbench.quant.calibrators.mse:LeastSquares",
        "ifmr": "qbench.quant.calibrators.ifmr:Ifmr",
        "hfmg": "qbench.quant.calibrators.hfmg:Hfmg",
    },
}
KINDS = tuple(BUILT_IN)
# Many names by one line: a pattern, and what is called with the part of the name that it captures.
FAMILIES: dict[str, dict[str, tuple[str, str]]] = {
    "metric": {
        "top<k>": (r"top([1-9][0-9]{0,5})", "qbench.metrics.topk:find_top"),
        "f1:<class>": (r"f1:(0|[1-9][0-9]{0,5})", "qbench.metrics.classes:f1_of"),
        "precision:<class>": (r"precision:(0|[1-9][0-9]{0,5})", "qbench.metrics.classes:precision_of"),
        "ndcg@<k>": (r"ndcg@([1-9][0-9]{0,3})", "qbench.metrics.retrieval:ndcg_at"),
        "recall@<k>": (r"recall@([1-9][0-9]{0,3})", "qbench.metrics.retrieval:recall_at"),
        "mrr@<k>": (r"mrr@([1-9][0-9]{0,3})", "qbench.metrics.retrieval:mrr_at"),
        "recall:<class>": (r"recall:(0|[1-9][0-9]{0,5})", "qbench.metrics.classes:recall_of"),
    },
    "host": {
        "ray:<class>": (r"ray:([a-z0-9][a-z0-9-]{0,39})", "qbench.hosts.ray_class:find_class"),
        "qemu:<CPU>": (r"qemu:([A-Za-z0-9][\w.-]*)", "qbench.hosts.emulated:find_host"),
    },
}
# Words that people say for a name and that no spelling leads to, with the names that they may mean.
ALIASES: dict[str, tuple[str, ...]] = {
    **dict.fromkeys(("ort", "onnx", "onnx-runtime", "onnx_runtime"), ("onnxruntime",)),
    **dict.fromkeys(("ov", "vino"), ("openvino",)),
    **dict.fromkeys(("xnnpack", "et", "pte"), ("executorch",)),
    **dict.fromkeys(("pytorch", "torchscript", "jit"), ("torch",)),
    **dict.fromkeys(("mkldnn", "dnnl"), ("onednn",)),
    **dict.fromkeys(("aoti", "aotinductor", "compile"), ("inductor",)),
    **dict.fromkeys(("int8", "i8", "ptq", "quantized"), ("static",)),
    **dict.fromkeys(("float", "float32", "f32", "full"), ("fp32",)),
    **dict.fromkeys(("bfloat16", "bfloat"), ("bf16",)),
    **dict.fromkeys(("float16", "f16", "half"), ("fp16", "bf16")),
    **dict.fromkeys(("int4", "4bit", "weights", "weight-only"), ("weight_only",)),
    **dict.fromkeys(("acc", "accuracy", "acc1"), ("top1", "accuracy")),
    **dict.fromkeys(("agreement", "agree"), ("top1_agreement",)),
    **dict.fromkeys(("snr", "psnr"), ("sqnr",)),
    **dict.fromkeys(("mse", "l2"), ("rmse",)),
    **dict.fromkeys(("local", "localhost", "here", "this"), ("native",)),
    **dict.fromkeys(("images", "folder", "imagefolder"), ("image-folder",)),
    **dict.fromkeys(("max", "absmax"), ("minmax",)),
}
# What a suite may write in place of a name.
MAPPINGS: dict[str, tuple[str, ...]] = {"metric": ("{python: file.py:function}",)}


@dataclass(frozen=True, kw_only=True)
class Entry:
    """One registered plug-in: ``target`` is ``module:attribute``; ``distribution`` is who brings it. Of a family the
    attribute is called with the ``argument``."""

    kind: str
    name: str
    target: str
    distribution: str
    argument: str | None = None


def entries(kind: str) -> dict[str, Entry]:
    """Every plug-in of a kind by name, built-ins first, names sorted; nothing is imported."""
    known = {
        name: Entry(kind=kind, name=name, target=target, distribution="qbench")
        for name, target in BUILT_IN[kind].items()
    }
    for point in _read_points(tuple(map(_describe_place, sys.path))).get(kind, ()):
        owner = point.dist.name if point.dist else "unknown"
        if point.name in known:
            taken = known[point.name]
            raise UsageError(
                f"two packages register the {kind} '{point.name}': {taken.distribution} ({taken.target}) and "
                f"{owner} ({point.value}); uninstall one or rename its entry point"
            )
        known[point.name] = Entry(kind=kind, name=point.name, target=point.value, distribution=owner)
    return dict(sorted(known.items()))


def families(kind: str) -> tuple[Entry, ...]:
    """The names of a kind that take an argument, such as ``qemu:<CPU>``."""
    return tuple(
        Entry(kind=kind, name=name, target=target, distribution="qbench")
        for name, (_, target) in FAMILIES.get(kind, {}).items()
    )


@functools.lru_cache(maxsize=1)
def _read_points(places: tuple[tuple[str, int | None], ...]) -> dict[str, tuple[importlib.metadata.EntryPoint, ...]]:
    """qbench's entry points by kind, of what is installed in these places; to read them takes as long as a plan."""
    points = importlib.metadata.entry_points()
    return {kind: tuple(points.select(group=f"qbench.{kind}")) for kind in KINDS}


def _describe_place(path: str) -> tuple[str, int | None]:
    """A place of ``sys.path``, and when something was last installed in it (None: it is not there)."""
    try:
        return path, os.stat(path or ".").st_mtime_ns  # noqa: PTH116  # ten times as fast as Path's
    except OSError:
        return path, None


def names(kind: str) -> tuple[str, ...]:
    """The sorted names of a kind."""
    return tuple(entries(kind))


def unknown(kind: str, name: str, available: Iterable[str]) -> str:
    """The message for a name that does not exist: a near match if there is one, and what there is."""
    options = sorted(available)
    return f"no {kind} named '{name}'{suggest(name, options) or ';'} available: {', '.join(options)}"


def suggest(name: str, options: Iterable[str]) -> str:
    """``; did you mean 'x'?`` where the name is another word for one of the options, or close to one, else nothing."""
    options = list(options)
    meant = [option for option in ALIASES.get(name.lower(), ()) if option in options]
    meant = meant or difflib.get_close_matches(name, options, n=1)
    return f"; did you mean {meant[0]!r}?" if meant else ""


def entry(kind: str, name: str) -> Entry:
    """The plug-in of that name; raises ``UnknownName`` with a suggestion."""
    known = entries(kind)
    if name in known:
        return known[name]
    if (member := find_in_family(kind, name)) is not None:
        return member
    raise UnknownName(unknown(kind, name, (*known, *FAMILIES.get(kind, {}), *MAPPINGS.get(kind, ()))))


def find_in_family(kind: str, name: str) -> Entry | None:
    """The plug-in of a name that a family's pattern takes; None for any other name."""
    for pattern, target in FAMILIES.get(kind, {}).values():
        if match := re.fullmatch(pattern, name):
            return Entry(kind=kind, name=name, target=target, distribution="qbench", argument=match[1])
    return None


def load(kind: str, name: str) -> Any:
    """The plug-in object itself (imports its module, which must not import a heavy library at top level)."""
    plugin = entry(kind, name)
    module, _, attribute = plugin.target.partition(":")
    try:
        loaded = getattr(importlib.import_module(module), attribute)
        return loaded if plugin.argument is None else loaded(plugin.argument)
    except (ImportError, AttributeError) as error:
        raise UsageError(f"{kind} '{name}' from {plugin.distribution} cannot be loaded: {error}") from error


def origin(plugin: Entry) -> str:
    """``file:line`` where a plug-in is defined, read from its source without importing it."""
    module, _, attribute = plugin.target.partition(":")
    try:
        spec = importlib.util.find_spec(module)
    except ImportError:
        spec = None
    if spec is None or spec.origin is None:
        return f"{module} (not found)"
    return f"{spec.origin}:{_line_of(Path(spec.origin), attribute)}"


def _line_of(path: Path, attribute: str) -> int:
    for node in ast.parse(path.read_text(encoding="utf-8")).body:
        bound: list[str] = []
        if isinstance(node, ast.FunctionDef | ast.ClassDef):
            bound = [node.name]
        elif isinstance(node, ast.Assign):
            bound = [target.id for target in node.targets if isinstance(target, ast.Name)]
        elif isinstance(node, ast.AnnAssign) and isinstance(node.target, ast.Name):
            bound = [node.target.id]
        if attribute in bound:
            return node.lineno
    return 1
