"""Networks as files: ONNX by both exporters of torch, several opsets, one batch size or any; TorchScript."""

from __future__ import annotations

import os
from pathlib import Path

import image_models
import text_models

_NETWORKS = {
    "resnet18": image_models,
    "mobilenet_v3_small": image_models,
    "convnextv2_atto": image_models,
    "bert": text_models,
}
_FORMS = {
    **{f"opset{opset}": {"opset_version": opset, "dynamo": False} for opset in (13, 15, 17, 20)},
    "dynamo": {"dynamo": True},
    "dynamo20": {"dynamo": True, "opset_version": 20},
    "one_batch": {"dynamo": True, "any_batch": False},
    "torchscript": None,
}


def _wrapped(module, output):
    from torch import nn

    class First(nn.Module):
        def __init__(self):
            super().__init__()
            self.network = module

        def forward(self, x):
            return getattr(self.network(x), output)

    return First() if output else module


def _export(name, form, file):
    """Writes the file; the network has seen examples, as the zoo's have."""
    import torch
    import zoo

    family = _NETWORKS[name]
    entry = family.NETWORKS[name]
    module = _wrapped(zoo.build(family.__name__, name), (entry[2] if len(entry) > 2 else {}).get("output")).eval()
    example = tuple(torch.from_numpy(array) for array in zoo.inputs(entry[1], 2, seed=3))
    if form is None:
        with torch.no_grad():
            torch.jit.trace(module, example, check_trace=False).save(str(file))
        return
    options = dict(form)
    batch = {0: "batch"}
    if not options.pop("any_batch", True):
        example = tuple(tensor[:1] for tensor in example)
    elif options["dynamo"]:
        options["dynamic_shapes"] = tuple({0: torch.export.Dim("batch", min=1)} for _ in example)
    else:
        options["dynamic_axes"] = {"x": batch, "y": batch}
    torch.onnx.export(
        module, example, str(file), input_names=["x"], output_names=["y"],
        **({"external_data": False} if options["dynamo"] else {}), **options,
    )  # fmt: skip


def source_of(network: str) -> str:
    """The model's source in a suite: the file, written once into the folder of the trials."""
    name, _, form = network.rpartition("-")
    settings = _FORMS[form]
    ending = "pt" if settings is None else "onnx"
    file = Path(os.environ["QBENCH_ECOSYSTEM"]) / "files" / f"{network}.{ending}"
    if not file.exists():
        file.parent.mkdir(parents=True, exist_ok=True)
        _export(name, settings, file)
    return f"{{{'torchscript' if settings is None else 'onnx'}: {file}}}"


NETWORKS = {f"{name}-{form}": (None, family.NETWORKS[name][1]) for name, family in _NETWORKS.items() for form in _FORMS}
