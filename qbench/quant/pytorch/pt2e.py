"""The PT2E flow: torch.export, the quantizer of the job's engine, torchao's convert.

What comes out is a graph of float operators between quantize and dequantize nodes: a simulation, slower than fp32. It
becomes int8 kernels when ``quant.artifacts.aoti`` compiles it, or ``quant.artifacts.executorch_program`` lowers it.
"""

from __future__ import annotations

import copy
import importlib
from collections.abc import Callable, Collection, Iterable, Iterator
from contextlib import contextmanager
from typing import Any

from qbench.errors import BuildError, ModeImpossible, reraise
from qbench.quant import model_call as forward
from qbench.quant.artifacts import torch_export
from qbench.quant.artifacts.torch_export import known_warnings
from qbench.quant.flow import Batches, Conversion, Converted, QuantizeJob
from qbench.quant.layer_selection import float_by_recipe
from qbench.quant.pytorch import calibration, exact_integers, float_calls, mean_errors_pt2e
from qbench.quant.pytorch.packed_layers import float_weights
from qbench.quant.pytorch.qat_modes import nothing_faked

# Engine -> the module that knows its quantizer; of any other it is Inductor's.
_QUANTIZERS = {"inductor": "pt2e_inductor", "executorch": "pt2e_xnnpack"}
_FLOATS = "qbench_float_layers"


def static(job: QuantizeJob, batches: Batches) -> Converted:
    """The module between quantize and dequantize nodes, with ranges seen on ``batches``.

    Raises ``BuildError`` where torch.export cannot trace it, the quantizer cannot annotate it, or an observer saw
    nothing.
    """
    rules = _load_rules(job)
    floats, weights = float_by_recipe(job.module, job.recipe, job.example), float_weights(job.module)
    with known_warnings():
        from torchao.quantization.pt2e.quantize_pt2e import prepare_pt2e

        job.progress("export", 0.1)
        graph = torch_export.export(copy.deepcopy(job.module).eval(), job.example)
        quantizer = rules.make_quantizer(job.recipe, floats, _find_float_calls(job), training=False, dynamic=False)
        prepared = _annotated(prepare_pt2e, graph, quantizer, job)
        calibration.run_batches(prepared, _fitting(batches(), graph.fixed_batch), job.progress)
        _require_observed(prepared)
        job.progress("convert", 0.6)
        converted = _converted(prepared, floats, rules)
        _require_int8_form(converted)
        finished: Converted = rules.finish(converted, job.recipe, weights)
        if job.recipe.gives_back_means:
            mean_errors_pt2e.give_back(finished.module, weights, _fitting(batches(), graph.fixed_batch))
        return finished


def dynamic(job: QuantizeJob) -> Converted:
    """The module whose Linear layers hold int8 weights and quantize their input by its range, call by call.

    Raises ``BuildError`` where it has no Linear layer to quantize.
    """
    import torch

    floats, rules = float_by_recipe(job.module, job.recipe, job.example), _load_rules(job)
    with known_warnings():
        from torchao.quantization.pt2e.quantize_pt2e import prepare_pt2e

        graph = torch_export.export(copy.deepcopy(job.module).eval(), job.example)
        quantizer = rules.make_quantizer(job.recipe, floats, _find_float_calls(job), training=False, dynamic=True)
        prepared = _annotated(prepare_pt2e, graph, quantizer, job)
        with torch.no_grad():
            prepared(*job.example)  # the observers of weights see them in a call; without one all scales are 1
        _require_observed(prepared)
        converted = _converted(prepared, floats, rules, dynamic=True)
        _require_linear(converted.module, floats)
        finished: Converted = rules.finish(converted, job.recipe, float_weights(job.module))
        return finished


def prepare_qat(job: QuantizeJob) -> Any:
    """A graph in train mode with fake quantization; raises ``BuildError`` where no weight got one."""
    floats, rules = float_by_recipe(job.module, job.recipe, job.example), _load_rules(job)
    with known_warnings():
        from torchao.quantization.pt2e.quantize_pt2e import prepare_qat_pt2e

        graph = torch_export.export(copy.deepcopy(job.module).train(), job.example)
        if graph.fixed_batch is not None:
            raise ModeImpossible(
                "QAT by PT2E needs a network that takes batches of any size, and torch.export can only trace this one "
                "for single examples; make its forward independent of the batch size"
            )
        quantizer = rules.make_quantizer(job.recipe, floats, _find_float_calls(job), training=True, dynamic=False)
        prepared = _annotated(prepare_qat_pt2e, graph, quantizer, job)
    _require_fake_quantize(prepared, job.module, floats, rules.TRAINS)
    torch_export.separate_batch_norm(prepared)
    torch_export.set_batch_norm_constants(prepared, torch_export.batch_norm_constants(job.module))
    prepared.meta[_FLOATS] = floats
    qat_modes(prepared, True)
    return prepared


def qat_modes(prepared: Any, training: bool) -> None:
    """Train or eval mode of BatchNorm and dropout; an exported graph has no ``.train()``."""
    torch_export.set_training(prepared, training)


def freeze_observers(prepared: Any) -> None:
    """Scales and zero points stay as they are from here on."""
    from torchao.quantization.pt2e import disable_observer

    prepared.apply(disable_observer)


def freeze_batch_norm(prepared: Any) -> None:
    """BatchNorm statistics stay as they are from here on, as in the int8 model."""
    torch_export.freeze_batch_norm(prepared)


def convert_qat(job: QuantizeJob) -> Converted:
    """The int8 graph of a trained fake-quantized one, which is changed: BatchNorm is folded into the convolutions."""
    prepared, rules = job.module, _load_rules(job)
    qat_modes(prepared, False)
    torch_export.fold_batch_norm(prepared)
    with known_warnings():
        finished: Converted = rules.finish(_converted(prepared, prepared.meta[_FLOATS], rules), job.recipe, {})
        return finished


def _find_float_calls(job: QuantizeJob) -> Callable[[Any], Collection[Any]]:
    """What finds the calls of a graph that int8 would spoil; nothing with torchao's own recipe, untouched."""
    if not job.recipe.joins_in_float:
        return lambda graph: ()
    return lambda graph: float_calls.find_float_calls(graph, job.examples)


def _load_rules(job: QuantizeJob) -> Any:
    return importlib.import_module(f"qbench.quant.pytorch.{_QUANTIZERS.get(job.engine, 'pt2e_inductor')}")


def _fitting(batches: Iterable[tuple[Any, ...]], fixed_batch: int | None) -> Iterator[tuple[Any, ...]]:
    """The batches as they are, or example by example where the graph takes single ones only."""
    for batch in batches:
        whole = fixed_batch is None
        yield from (batch,) if whole else zip(*(tensor.split(1) for tensor in batch), strict=True)


def _annotated(
    prepare: Callable[[Any, Any], Any], graph: torch_export.Exported, quantizer: Any, job: QuantizeJob
) -> Any:
    title = _load_rules(job).TITLE
    ways_out = "name the layer in skip_layers, or use another backend"
    if not job.recipe.canonicalize:
        ways_out = "remove canonicalize: false (by default each call gets a module of its own), or " + ways_out
    # torchao's matchers assert and raise in many ways on graphs that they were not written for.
    with reraise(
        BuildError,
        lambda error: (
            f"{title} cannot annotate this network ({forward.reason(error)}): most often one module is "
            f"called twice; {ways_out}"
        ),
        (AssertionError, ValueError, RuntimeError, NotImplementedError, KeyError, IndexError),
    ):
        return prepare(graph.module(), quantizer)


def _converted(prepared: Any, floats: dict[str, str], rules: Any, *, dynamic: bool = False) -> Converted:
    from torchao.quantization.pt2e.quantize_pt2e import convert_pt2e

    with exact_integers.refuse_conversion("PT2E"), _own_folding():
        module = convert_pt2e(prepared)
    reasons = torch_export.float_reasons(module, floats, rules.explain_float, dynamic=dynamic)
    return Converted(module=module, conversion=Conversion(float_reasons=reasons))


@contextmanager
def _own_folding() -> Iterator[None]:
    """Without torchao's folding of BatchNorm, which takes half a minute wherever one is left: what can be folded is
    (``torch_export.fold_batch_norm``), and the rest Inductor folds into float convolutions."""
    from torchao.quantization.pt2e import quantize_pt2e

    theirs = quantize_pt2e._fold_conv_bn_qat
    quantize_pt2e._fold_conv_bn_qat = lambda module: module
    try:
        yield
    finally:
        quantize_pt2e._fold_conv_bn_qat = theirs


def _require_observed(prepared: Any) -> None:
    """Raises ``BuildError`` where an observer saw nothing; infinite values are left to torchao."""
    from torchao.quantization.pt2e import ObserverBase

    observing = ((name, part) for name, part in prepared.named_modules() if isinstance(part, ObserverBase))
    observers = ((name, getattr(part, "inner", part)) for name, part in observing)
    calibration.require_observed(observers, passes=lambda observer: True)


def _require_int8_form(converted: Converted) -> None:
    """Raises ``ModeImpossible`` for a network of none but operators that the quantizer does not know."""
    quantized = any("dequantize_per" in str(node.target) for node in converted.module.graph.nodes)
    reasons = dict.fromkeys(converted.conversion.float_reasons.values())
    if reasons and not quantized and all(torch_export.NO_INT8_FORM in reason for reason in reasons):
        raise ModeImpossible(f"{'; '.join(reasons)}, and this model has no other layer; use another backend")


def _require_linear(module: Any, floats: dict[str, str]) -> None:
    if not any("choose_qparams" in str(node.target) for node in module.graph.nodes):
        raise (BuildError if floats else ModeImpossible)(
            "dynamic quantization by PT2E covers Linear layers, and this model has none"
            f"{' that is not skipped' if floats else ''}; use static instead"
        )


def _require_fake_quantize(prepared: Any, module: Any, floats: dict[str, str], trains: str) -> None:
    import torch
    from torchao.quantization.pt2e import FakeQuantizeBase

    weights = [part for part in prepared.modules() if isinstance(part, FakeQuantizeBase) and part.dtype == torch.int8]
    if not weights:
        raise nothing_faked(module, bool(floats), trains)
