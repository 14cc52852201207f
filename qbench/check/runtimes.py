"""Whether the installed runtimes load and run a file, what they ran, and why one refuses."""

from __future__ import annotations

import importlib.metadata
import re
from pathlib import Path

from qbench import registry
from qbench.backends.base import Backend, Inputs
from qbench.check.budget import Budget
from qbench.check.finding import RuntimeCheck
from qbench.errors import CaseError, QbenchError
from qbench.models import base
from qbench.process.child_process import call
from qbench.quant.artifacts.coverage import Layer
from qbench.quant.artifacts.node_profile import CallProfile

# A format as a person says it, and the backends that may run it.
_OF_FORMAT: dict[str, tuple[str, tuple[str, ...]]] = {
    "onnx": ("ONNX", ("onnxruntime", "openvino")),
    "openvino": ("OpenVINO IR", ("openvino",)),
    "torchscript": ("TorchScript", ("fbgemm", "qnnpack")),
}
# The same by what a file's name ends in, and what no suite takes but as a backend writes it.
FORMATS: dict[str, tuple[str, tuple[str, ...]]] = {
    **{ending: _OF_FORMAT[name] for ending, name in base.FORMATS.items()},
    ".pt2": ("AOTInductor package", ("inductor",)),
    ".pte": ("ExecuTorch program", ("executorch",)),
}
SECONDS = 0.5  # of calls that are timed
# What a runtime says -> what that means, and what to do. The groups of the pattern fill both.
_REFUSALS: tuple[tuple[str, str, str], ...] = (
    (
        r"Could not find an implementation for (\w+)\((\d+)\) node with name '([^']*)'",
        "it has no CPU kernel for the {0} of {2!r} (opset {1}) with these types",
        "{0:advice}",
    ),
    (
        r"Unsupported model IR version: (\d+), max supported IR version: (\d+)",
        "the file has IR version {0}, and this release reads up to {1}",
        "upgrade onnxruntime, or set model.ir_version = {1} and save it again where no newer feature is used",
    ),
    (
        r"ValidateOpsetForDomain",
        "the opset of the file is newer than this release supports",
        "upgrade onnxruntime, or export with an older opset_version",
    ),
    (
        r"[Nn]o [Oo]p registered for (\w+) with domain_version of (\d+)|(\w+)\(-?1?\) is not a registered function/op",
        "it does not know the operator {0}",
        "register the library of that operator, or export the network without it",
    ),
    (
        r"External data path does not exist|[Ff]ailed to load external|No such file or directory",
        "weights that lie in a file of their own are not where the model looks for them",
        "put the data file beside the model under the name that it has in it (onnx.external_data_helper)",
    ),
    (
        r"Type Error: Type '([^']+)' of input parameter \(([^)]*)\) of operator \((\w+)\) in node \(([^)]*)\)",
        "the {2} {3!r} gets {1} as {0}, which it does not take",
        "export again; most often a tool has quantized one operand of an operator and not the other",
    ),
    (
        r"while running (\w+) node\. Name:'([^']*)' Status Message: (.+)",
        "the {0} {1!r} fails as it runs: {2}",
        "look at its inputs: most often a scale, a weight or a --shape has another size than it takes, or one decides "
        "what runs and has a random value (--constant rate=16000 says what it holds)",
    ),
    (
        r"forward\(\) is missing value for argument '(\w+)'.*?\b(int|float|bool|str)\b[^,)]* \1\b",
        "it takes {0}, which is no tensor ({1})",
        "wrap the network in one that gives it that value, and save that",
    ),
    (
        r"forward\(\) is missing value for argument '(\w+)'",
        "it takes {0}, too, of which nothing is said",
        "name the shape of each of its inputs, in their order: --shape x=1x512 --shape {0}=2x1x128",
    ),
    (
        r"PytorchStreamReader failed locating file constants\.pkl|Invalid magic number; corrupt file",
        "it is no TorchScript file but what torch.save wrote of Python objects, which is not opened: that runs code",
        "save it with torch.jit.save(torch.jit.trace(…)), or export it to ONNX",
    ),
    (
        r"Failed to execute method forward, error: 0x1[02]",
        "it refuses inputs of these shapes, or lacks a kernel for them",
        "name the shapes that the program was lowered for with --shape",
    ),
    (
        r"took longer than (\S+) s and was stopped",
        "a call of it did not end in {0} s, what a check has for a file of this size",
        "look for a loop that never ends; a call that does end is timed by a suite (limits: {{stage_seconds: …}})",
    ),
    (
        r"it does not know ([\w.]+?)(?:-\d+)? as it stands there",
        "it does not know {0} as it stands there",
        "run it on ONNX Runtime, or write it in another form (Q and DQ in place of operators on bytes)",
    ),
)
_NO_KERNEL = {
    "ConvInteger": "dynamic quantization of convolutions: leave Conv out (op_types_to_quantize=['MatMul', 'Gemm']), or "
    "quantize it statically",
}


def check_runtime(backend: str, file: Path, inputs: Inputs, threads: int, budget: Budget) -> RuntimeCheck:
    """What one runtime makes of a file, in a process of its own: a crash is an answer, too."""
    plugin: Backend = registry.load("backend", backend)
    if (missing := plugin.missing()) is not None:
        return RuntimeCheck(runtime=backend, version=None, refused=missing)
    version = _version(plugin)
    try:
        layers, profile, known_batch_db = call(look_here, backend, file, inputs, threads, limits=budget.limits)
    except (CaseError, QbenchError) as error:
        text, advice = explain_refusal(str(error))
        return RuntimeCheck(runtime=backend, version=version, refused=text, advice=advice)
    return RuntimeCheck(runtime=backend, version=version, layers=layers, profile=profile, known_batch_db=known_batch_db)


def explain_refusal(words: str) -> tuple[str, str]:
    """(what a runtime's words mean, what to do), the words themselves and nothing where they are not known."""
    for pattern, meaning, advice in _REFUSALS:
        match = re.search(pattern, words)
        if match is None:
            continue
        groups = [group for group in match.groups() if group is not None]
        if advice == "{0:advice}":
            other = f"export {groups[0]} in another form, keep it in float, or use another runtime"
            return meaning.format(*groups), _NO_KERNEL.get(groups[0], other)
        return meaning.format(*groups), advice.format(*groups)
    return words, ""


def _version(plugin: Backend) -> str | None:
    names = plugin.runtime_libraries()
    for name in sorted(names, key=lambda name: name != plugin.name):
        try:
            return importlib.metadata.version(name)
        except importlib.metadata.PackageNotFoundError:
            continue
    return None


def look_here(
    backend: str, file: Path, inputs: Inputs, threads: int, *, progress: object
) -> tuple[tuple[Layer, ...], CallProfile, float | None]:
    """``watch_here``, and ``RuntimeCheck.known_batch_db``."""
    plugin: Backend = registry.load("backend", backend)
    layers, profile = watch_here(backend, file, inputs, threads, progress=progress)
    return layers, profile, plugin.compare_known_batch(file, inputs)


def watch_here(
    backend: str, file: Path, inputs: Inputs, threads: int, *, progress: object
) -> tuple[tuple[Layer, ...], CallProfile]:
    """The layers that multiply, and where the time of a call goes; in this process, a child."""
    plugin: Backend = registry.load("backend", backend)
    layers, profile = plugin.watch(file, inputs, threads=threads, seconds=SECONDS)
    return layers, profile.fit_into_call()
