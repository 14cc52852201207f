"""What a run starts from: beside the examples (``data``) the fp32 networks, checked once and put into the cache.

Runs in child processes (user code, torch). Later stages load the network with the very same weights, so a factory that
draws random weights still gives one network to every variant.
"""

from __future__ import annotations

import hashlib
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from qbench import registry
from qbench.backends.base import Inputs
from qbench.backends.torch_runner import tensors
from qbench.cache import store
from qbench.data import Data, DataRequest
from qbench.data_preparation import require_not_trained_on
from qbench.errors import CaseError, EvaluateError, ModelError, out_of_memory
from qbench.metrics.spec import MetricSpec
from qbench.models import adapt, batch_dependence, dry_run, float32, trainer
from qbench.models import weights as weights_file
from qbench.models.alphabet import describe_unknown_letters
from qbench.models.base import BuiltIn, ModelReference, Network
from qbench.models.postprocess import Postprocess
from qbench.models.quantized_module import describe_own_qconfig, why_not_float
from qbench.progress.callback import Progress
from qbench.train import train

Array = NDArray[Any]
PROBES = 4  # examples on which a network is tried before anything is built


@dataclass(frozen=True, kw_only=True)
class Model:
    """A checked network: how to load it again, and the digests that name it. ``outputs``: the tensors that it returns,
    as ``output`` in a suite names them, first the one that counts. ``misfit``: why the metric cannot judge it, where
    another can. ``summary``: the metric's, which stands in place of a ``postprocess``."""

    reference: ModelReference
    weights: Path | None
    weights_digest: str
    code_digest: str
    notes: tuple[str, ...] = field(default=())
    summary: Postprocess | None = None
    int8_digests: Mapping[str, str] = field(default_factory=dict)  # of the user's int8 files, by recipe
    outputs: tuple[str, ...] = ()
    misfit: str | None = None

    @property
    def postprocess(self) -> Postprocess | None:
        """What makes answers of its outputs, given them by name where there are several and the suite names none."""
        return self.summary or _name_outputs(self.reference, self.outputs)


def _name_outputs(reference: ModelReference, outputs: tuple[str, ...]) -> Postprocess | None:
    own = reference.postprocess
    return None if own is None else replace(own, names=outputs if reference.output is None and len(outputs) > 1 else ())


def _find_summary(reference: ModelReference, metric: MetricSpec) -> Postprocess | None:
    """What the metric makes of outputs that are too large to keep; None where it takes them as they are. Raises
    ``ModelError`` where a ``postprocess`` would have made something else of them."""
    if not metric.load().summary:
        return None
    if reference.postprocess is not None:
        raise ModelError(
            f"{reference.name}: {metric.name} reads the logits of all tokens, not what a postprocess makes of them; "
            "leave `postprocess` out, and say by `output:` which output the logits are where there are several"
        )
    return Postprocess(attribute=metric.name, of_metric=True)


def prepare_model(
    reference: ModelReference,
    data: Data,
    metric: MetricSpec,
    root: Path,
    otherwise: MetricSpec | None = None,
    *,
    progress: Progress,
) -> Model:
    """Loads (and for a built-in trains, once) a network, tries it on real examples, caches its weights. ``otherwise``:
    the metric that judges what ``metric`` cannot.

    Raises ``ModelError`` where the network does not take the data, or gives what the metric cannot judge.
    """
    notes: tuple[str, ...] = ()
    trained = None
    if train.is_trained(reference):
        training = train.train_builtin(reference, data, _request(data), root, progress=progress)
        reference, trained, notes = training.reference, training.file, training.notes
    elif reference.source is None:
        builtin: BuiltIn = registry.load("model", reference.name)
        default_args = builtin.arguments(data.evaluation(0, 1)[0].shape[1:], data.classes)
        reference = replace(reference, args={**default_args, **reference.args})
        if builtin.fitted_on is not None and reference.weights is None:
            overlap_note = require_not_trained_on(data, builtin.fitted_on(), name=builtin.name)
            notes = (overlap_note,) if overlap_note else ()
    network, note = _load(reference, trained)
    first = None if reference.output is not None else dry_run.find_first_output(network, data.evaluation(0, 1))
    if first is not None:
        reference = replace(reference, first=first)
        network, note = _load(reference, trained)
    _require_float(network, reference)
    notes += tuple(filter(None, [None if network.module is None else describe_own_qconfig(network.module)]))
    as_returned = _keep_outputs(reference, trained, data, root)
    reference, network, adapted = _adapt_network(reference, network, data, root)
    notes += tuple(filter(None, (note, adapted)))
    progress("try the network on real examples", 0.9)
    tried = _try_network(network, data, reference.name)
    if network.kind == "torch":
        _require_float(network, reference, data.evaluation(0, 1))
    outputs = dry_run.list_outputs(as_returned or network, data.evaluation(0, 1), reference.counted)
    summary = _find_summary(reference, metric)
    postprocess = summary or _name_outputs(reference, outputs)
    if postprocess is not None:
        tried = _try_postprocess(postprocess, network, data, reference.name)
        notes += _say_unknown_letters(postprocess, data, reference.name)
    misfit = _require_judged(tried, data, metric, otherwise, reference.name)
    if reference.output is None and misfit is None and postprocess is None and metric.load().against == "labels":
        notes += _say_first(reference.name, outputs)
    digest = weights_file.weights_digest(network)
    file = None
    if network.kind == "torch":
        entry = store.fetch(root, "weights", digest, lambda folder: _save_weights(network.module, folder))
        file = entry.folder / "model.safetensors"
        notes += (f"{reference.name}: {entry.note}",) if entry.note else ()
    return Model(
        reference=reference,
        weights=file,
        weights_digest=digest,
        code_digest=_digest_code(reference, network, data),
        notes=notes,
        int8_digests={own.recipe: weights_file.int8_digest(own) for own in reference.int8},
        outputs=outputs,
        misfit=misfit,
        summary=summary,
    )


def _digest_code(reference: ModelReference, network: Network, data: Data) -> str:
    """What names a network beside its weights: its code, how it is called, and what it answers."""
    return store.key_of(
        {
            "code": weights_file.code_digest(reference),
            "behaviour": _digest_outputs(network, data),
            "factory": reference.attribute,
            "args": dict(reference.args),
            "called": [[(name, asdict(form)) for name, form in reference.inputs.items()], reference.counted],
            "axis": reference.output_axis,
        }
    )


def _keep_outputs(reference: ModelReference, trained: Path | None, data: Data, root: Path) -> Network | None:
    """The network with its outputs as it names them, where the suite says which counts or how it lies: the adapted one
    returns them by position."""
    if reference.counted is None and not reference.output_axis:
        return None
    whole = replace(reference, output=None, first=None, output_axis=0)
    return _adapt_network(whole, _load(whole, trained)[0], data, root)[1]


def _say_first(name: str, outputs: Sequence[str]) -> tuple[str, ...]:
    """That the labels judge one of several outputs, since the suite names none."""
    if len(outputs) < 2:
        return ()
    counted = ", counted from 0" if outputs[0].isdigit() else ""
    return (
        f"{name}: it returns {len(outputs)} outputs ({', '.join(outputs)}{counted}), and the labels judge only the "
        f"first; the rest is held against fp32's, and shown; `output: {outputs[1]}` beside the model's name judges "
        "that one instead",
    )


def _require_float(network: Network, reference: ModelReference, example: Inputs = ()) -> None:
    """Raises ``ModelError`` for a module that is quantized already, or quantizes as it is called with an example; of an
    ONNX file its source has looked."""
    if network.module is None:
        return
    reason = why_not_float(network.module, tensors(example))
    if reason is not None:
        beside = "" if network.path is None else f", and this file beside it: `int8: {network.path.name}`"
        raise ModelError(
            f"{reference.name}: {reason}, so it is no fp32 to compare with; give the float network that it was made "
            f"from as source{beside or ', and qbench builds the int8 variants'}"
        )


def _digest_outputs(network: Network, data: Data) -> str | None:
    """The digest of what the network gives for made-up inputs: a factory may read a configuration that is neither
    code nor weight. None where it does not take them (its file, code and weights then name it alone)."""
    try:
        outputs = _try(network, data.probe(1))
    except (CaseError, RuntimeError, TypeError, ValueError, IndexError) as error:
        if out_of_memory(error):
            raise
        return None
    return hashlib.sha256(np.ascontiguousarray(outputs).tobytes()).hexdigest()


def load_network(reference: ModelReference, weights: Path | None) -> Network:
    """The fp32 network in eval mode, with the given weights if any; on one thread."""
    return _load(reference, weights)[0]


def _load(reference: ModelReference, weights: Path | None) -> tuple[Network, str | None]:
    """The network, and a note where its weights or its arithmetic had another precision."""
    source = "python" if reference.source is None else reference.source
    if reference.source is None:
        builtin: BuiltIn = registry.load("model", reference.name)
        weights = weights or reference.weights or (builtin.weights() if builtin.weights else None)
        if builtin.kind == "onnx":
            return Network(kind="onnx", path=weights), None
        network = Network(kind="torch", module=trainer.fresh(builtin, **reference.args).eval())
    else:
        network = registry.load("source", source)(reference)
    if weights is not None and network.module is not None:
        weights_file.load_weights(network.module, weights)
    if network.kind != "torch":
        return network, None
    notes = (float32.keep_float32(reference.name), adapt.adapt_module(network.module, reference))
    return network, "; ".join(filter(None, notes)) or None


def _adapt_network(
    reference: ModelReference, network: Network, data: Data, root: Path
) -> tuple[ModelReference, Network, str | None]:
    """A network that is a file, as the file that every later stage takes: adapted once, into the cache, and with it the
    user's int8 files beside it; a note on it."""
    example = data.evaluation(0, 1) if data.one_shape else ()
    adapted = _adapt_file(network, reference, example, root)
    if adapted is None or network.path is None:
        return reference, network, None
    int8 = []
    for own in reference.int8:
        if own.format == "openvino":  # it is taken as it is
            int8.append(own)
            continue
        own_network = Network(kind="onnx", path=own.path)
        if own.format == "torchscript":
            own_network = registry.load("source", own.format)(ModelReference(name=own.file, path=own.path))
        adapted_int8 = _adapt_file(own_network, reference, example, root)
        int8.append(own if adapted_int8 is None else replace(own, path=adapted_int8[0]))
    plain = replace(reference, path=adapted[0], int8=tuple(int8), inputs={}, output=None, output_axis=0)
    return plain, load_network(plain, None), adapted[1]


def _adapt_file(
    network: Network, reference: ModelReference, example: Inputs, root: Path
) -> tuple[Path, str | None] | None:
    """The adapted file in the cache, and a note on it; None where there is nothing to adapt."""
    write = adapt.file_of(network, reference, example)
    if write is None:
        return None

    def fill(folder: Path) -> Mapping[str, Any]:
        return {"note": write(folder / "network")}

    inputs = [(name, asdict(form)) for name, form in reference.inputs.items()]  # their order is that of the arrays
    parts = {
        "file": weights_file.weights_digest(network),
        "called": [inputs, reference.counted, reference.output_axis],
        "shapes": [list(array.shape[1:]) for array in example],
        "code": adapt.code_digest(),
    }
    entry = store.fetch(root, "networks", store.key_of(parts), fill)
    return entry.folder / "network", entry.facts["note"]


def _request(data: Data) -> DataRequest:
    assert data.request is not None  # whoever prepared the data knows what was asked for
    return data.request


def _save_weights(module: Any, folder: Path) -> Mapping[str, Any]:
    weights_file.save_weights(module, folder / "model.safetensors")
    return {}


def _try_network(network: Network, data: Data, name: str) -> Array:
    """The first output for a few examples; raises ``ModelError`` where the network does not take them."""
    probes = min(PROBES, data.evaluation_count)
    inputs = data.evaluation(0, probes)
    try:
        outputs = _try(network, inputs)
        batch_dependence.require_independent(network, inputs, outputs)
    except dry_run.Misfit as error:
        shapes = ", ".join(f"{array.dtype}{list(array.shape)}" for array in inputs)
        raw = tuple(array[:probes] for array in data._raw("evaluate"))
        hint = dry_run.find_hint(network, raw) if data.preprocessing.to_float else ""
        raise ModelError(f"{name} does not take this data ({shapes}): {error}{hint}") from error
    except ModelError as error:
        raise ModelError(f"{name}: {error}") from error
    return outputs


def _try_postprocess(postprocess: Postprocess, network: Network, data: Data, name: str) -> Array:
    """The answers that it makes of a few examples' outputs; raises ``ModelError`` where it cannot."""
    try:
        count = min(PROBES, data.evaluation_count)
        labels = data.evaluation_labels()
        outputs = dry_run.try_all_outputs(network, data.evaluation(0, count))
        return postprocess.load()(outputs, None if labels is None else labels[:count])
    except EvaluateError as error:
        where = name if postprocess.of_metric else f"{name}: postprocess"
        raise ModelError(f"{where}: {error}") from error


def _say_unknown_letters(postprocess: Postprocess, data: Data, name: str) -> tuple[str, ...]:
    """That labels are texts which a recognizer cannot write, where its postprocess says which letters it has."""
    alphabet = postprocess.read_alphabet()
    problem = alphabet and describe_unknown_letters(alphabet, data.evaluation_labels(), data.evaluation_ids())
    return (f"{name}: {problem}",) if problem else ()


def _require_judged(
    outputs: Array, data: Data, metric: MetricSpec, otherwise: MetricSpec | None, name: str
) -> str | None:
    """Why ``metric`` cannot judge the first outputs or answers, where ``otherwise`` can; None where it can."""
    probes = len(outputs)
    labels = data.evaluation_labels()
    if labels is not None:
        # The extremes of all labels stand for them: a class that the network lacks is found now, not after an hour.
        ends = [labels.min(), labels.max()] if labels.ndim == 1 else []
        labels = np.stack([*ends, *labels[:probes]][:probes]).astype(labels.dtype)
    problem = metric.load().problem(outputs, labels, data.classes)
    if problem and (otherwise is None or otherwise.load().problem(outputs, labels, data.classes)):
        raise ModelError(f"{name}: {problem}")
    return problem


def _try(network: Network, inputs: Inputs) -> Array:
    """The first output for a few examples; raises ``ModelError`` where the network does not take them."""
    return dry_run.try_outputs(network, inputs)
