"""Calibration model + complete record -> fake-quant model, deploy models, .quant.json."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING

from qbench.errors import UsageError
from qbench.files import regular_file
from qbench.quant.onnx.calibration.batches import Batches, Feed, checked, declared
from qbench.quant.onnx.export import executed_layers, integer_weights, narrow_weights
from qbench.quant.onnx.export.executed_layers import Settled
from qbench.quant.onnx.export.narrow_weights import Fitted
from qbench.quant.onnx.export.parity import EXAMPLES, Parity, compared
from qbench.quant.onnx.formats import calibration_file, quant_json
from qbench.quant.onnx.formats import scale_record as record_file
from qbench.quant.onnx.graph.graph import Graph
from qbench.quant.onnx.sites import SKIPPED

if TYPE_CHECKING:
    from qbench.quant.onnx.sites import Record, Sites

TARGETS = ("onnxruntime", "ascend")
# What a file is -> how its name ends.
ENDINGS = {
    "fake_quant": "_fake_quant_model.onnx",
    "onnxruntime": "_deploy_model.onnx",
    "ascend": "_ascend_model.onnx",
    "quant_json": quant_json.ENDING,
}
_WAY_OUT = "; tensor_quantize can name that"  # a key of this flow's configuration, which suites do not have
_NO_SIGNALS = "in the model for Ascend, whose compiler quantizes no convolution along one axis"


@dataclass(frozen=True, kw_only=True)
class Saved:
    """The files that were written, by what they are (the keys of ``ENDINGS``), and how far each target's model agrees
    with the fake-quant model (None: it takes no random inputs); ``real``: on the examples that were given. ``form``:
    the bytes of the model for ONNX Runtime, ``narrowed``: the share of the channels of weights (of every model that
    was written) that got a wider step for it; both None where there is nothing to tell. ``floats``: layer that was to
    be int8, or that was skipped -> why it runs in float, or in which of the models."""

    files: Mapping[str, Path]
    parity: Mapping[str, Parity | None] = field(default_factory=dict)
    real: bool = False
    form: str | None = None
    narrowed: float | None = None
    floats: Mapping[str, str] = field(default_factory=dict)


def save(
    calibration: Path,
    record: Path,
    prefix: Path,
    targets: Iterable[str],
    *,
    data: Batches | None = None,
    form: str | None = None,
) -> Saved:
    """Makes every model before the first one is written, each file whole; compares them, writes the document last.

    ``data``: batches to compare them on, the first that hold ``EXAMPLES`` (of an ascend model, whose interpreter is
    slow, its first examples); without it random ones. ``form``: of the model for ONNX Runtime, one of
    ``narrow_weights.CHOICES``; None: what is fast and exact on this machine. Where weights are narrowed for it, every
    model of the call has the narrowed ones, so that the fake-quant model is what runs; for the same reason what ONNX
    Runtime runs in float on this machine is float in every model of the call. Raises ``UsageError`` for a record that
    is not complete or not this model's, ``DataError`` for data that does not fit it, and ``BuildError`` for a layer
    that cannot be expressed.
    """
    runtimes = _known(targets)
    model, content = calibration_file.read(calibration), record_file.read(record)
    graph = model.graph()
    record_file.require_complete(content, graph, model.sites, file=record, batch_num=model.config.batch_num)
    calibration_file.require_same_balance(content, model, record)
    feeds = None if data is None else tuple(_first(graph, data))
    fitted = narrow_weights.fitted(graph, model.sites, content, form) if "onnxruntime" in runtimes else None
    settled = _settle(graph, model.sites, fitted)
    content, sites = integer_weights.holding(graph, settled.sites, fitted.record if fitted else content), settled.sites
    graphs = {what: _build_model(what, graph, settled, content) for what in ("fake_quant", *runtimes)}
    files = {what: name_file(prefix, ENDINGS[what]) for what in (*graphs, "quant_json")}
    _apart(calibration, record, files.values())
    for what, saved_model in graphs.items():
        saved_model.save(files[what])
    parity = {target: compared(graphs["fake_quant"], graphs[target], feeds) for target in runtimes}
    models = {what: files[what] for what in graphs}
    report = {target: asdict(models) if models else None for target, models in parity.items()}
    choice, narrowed = (fitted.choice, fitted.narrowed) if fitted else (None, None)
    quant_json.write(
        files["quant_json"], graph=graph, sites=sites, record=content, files=models, parity=report, form=choice
    )
    floats = {name: why for name, why in model.sites.floats.items() if why == SKIPPED} | dict(settled.floats)
    if "ascend" in runtimes:
        floats = dict.fromkeys(sorted(_signals(graph, model.sites)), _NO_SIGNALS) | floats
    return Saved(files=files, parity=parity, real=feeds is not None, form=choice, narrowed=narrowed, floats=floats)


def simulated(graph: Graph, sites: Sites, record: Record) -> Graph:
    """The fake-quant model of what ``save`` writes for ONNX Runtime on this machine."""
    from qbench.quant.onnx.export.fake_quant import fake_quant

    fitted = narrow_weights.fitted(graph, sites, record)
    return fake_quant(graph, executed_layers.settled(graph, sites, fitted).sites, fitted.record)


def name_file(prefix: Path, ending: str) -> Path:
    """The file of that ending under a prefix, which may name a folder and the start of a name; raises ``UsageError``
    where it names no start."""
    if not prefix.name:
        raise UsageError(f"{prefix}: a folder; name how the files begin, too: {prefix / 'model'}")
    return prefix.with_name(prefix.name + ending)


def _known(targets: Iterable[str]) -> tuple[str, ...]:
    """The targets, each once; raises ``UsageError`` for one that there is not."""
    names = tuple(dict.fromkeys(targets))
    for target in names:
        if target not in TARGETS:
            raise UsageError(f"no target named {target!r}; available: {', '.join(TARGETS)}")
    return names


def _first(graph: Graph, data: Batches) -> Iterator[Feed]:
    """The first batches, until they hold as many examples as are compared."""
    inputs, examples = declared(graph), 0
    for number, batch in enumerate(data() if callable(data) else data, start=1):
        feed = checked(inputs, batch, number)
        yield feed
        examples += len(first) if (first := next(iter(feed.values()))).ndim else 1
        if examples >= EXAMPLES:
            return


def _apart(calibration: Path, record: Path, outputs: Iterable[Path]) -> None:
    """What is read is never overwritten."""
    for file in outputs:
        if regular_file.real_path(file) in (regular_file.real_path(calibration), regular_file.real_path(record)):
            raise UsageError(f"{file}: would be overwritten while it is read; take another prefix")


def _settle(graph: Graph, sites: Sites, fitted: Fitted | None) -> Settled:
    """What is quantized in every model of a call: what ONNX Runtime runs in int8 where there is a model for it, else
    all but the outputs of the graph, which only its kernels need as bytes."""
    if fitted is not None:
        return executed_layers.settled(graph, sites, fitted, way_out=_WAY_OUT)
    return Settled(graph=graph, sites=_without_signals(graph, executed_layers.without_outputs(graph, sites)))


def _without_signals(graph: Graph, sites: Sites) -> Sites:
    """Sites without convolutions along one axis: the Ascend compiler quantizes none, ONNX Runtime does."""
    return executed_layers.without(graph, sites, _signals(graph, sites))


def _signals(graph: Graph, sites: Sites) -> set[str]:
    nodes = [graph.node(site.layer) for site in sites.weights]
    return {node.name for node in nodes if node.op_type == "Conv" and len(graph.shape(node.input[1]) or ()) == 3}


def _build_model(what: str, graph: Graph, settled: Settled, record: Record) -> Graph:
    if what == "onnxruntime":
        return settled.graph
    if what == "fake_quant":
        from qbench.quant.onnx.export.fake_quant import fake_quant

        return fake_quant(graph, settled.sites, record)
    from qbench.quant.onnx.export.deploy_ascend import deploy as ascend

    return ascend(graph, _without_signals(graph, settled.sites), record)
