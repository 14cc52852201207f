"""Rules of qbench/quant/pytorch/torch_ao.py: the engine of the process, stack traces, known warnings."""

from __future__ import annotations

import warnings
from typing import Any

import pytest
import torch

from qbench.errors import BuildError
from qbench.quant.flow import QuantizeJob
from qbench.quant.pytorch import dynamic, eager, fx, torch_ao
from qbench.quant.recipe import Recipe


@pytest.mark.usefixtures("engine_put_back")
def test_the_engine_is_set_and_asked_for() -> None:
    """One that the build has; of another the message says what there is, and what is set."""
    first = next(engine for engine in torch_ao.ENGINES if engine in torch.backends.quantized.supported_engines)
    torch_ao.set_engine(first)
    assert torch.backends.quantized.engine == first
    torch_ao.require_engine(first)
    with pytest.raises(BuildError, match=f"^the process's quantized engine is '{first}': weights for 'other' would be"):
        torch_ao.require_engine("other")
    with pytest.raises(BuildError, match=f"^this build of torch has no quantized engine 'other'; it has .*{first}"):
        torch_ao.set_engine("other")
    assert torch.backends.quantized.engine == first


def test_an_engine_that_torch_does_not_take_is_told(monkeypatch: pytest.MonkeyPatch) -> None:
    """Reading it back shows it."""

    class Kept:
        supported_engines = ("fbgemm",)
        engine = property(lambda self: "onednn", lambda self, value: None)

    monkeypatch.setattr(torch.backends, "quantized", Kept())
    with pytest.raises(BuildError, match="^torch kept the quantized engine 'onednn', not 'fbgemm'$"):
        torch_ao.set_engine("fbgemm")


@pytest.mark.parametrize(
    ("flow", "name"),
    [
        *((fx, name) for name in ("static", "dynamic", "prepare_qat", "convert_qat")),
        *((eager, name) for name in ("static", "prepare_qat", "convert_qat")),
        (dynamic, "by_module"),
    ],
    ids=str,
)
@pytest.mark.usefixtures("engine_put_back")
def test_no_flow_packs_weights_for_another_engine(flow: Any, name: str) -> None:
    """It is told before anything else is done."""
    first = next(engine for engine in torch_ao.ENGINES if engine in torch.backends.quantized.supported_engines)
    torch_ao.set_engine(first)
    job = QuantizeJob(None, "other", Recipe(), (torch.ones(1, 2),))
    more = (lambda: iter(()),) if name == "static" else ()
    with pytest.raises(BuildError, match=f"^the process's quantized engine is '{first}': weights for 'other'"):
        getattr(flow, name)(job, *more)


def test_tracing_keeps_stack_traces_again_afterwards() -> None:
    """What it was before, also where tracing fails."""
    import torch.fx.config as config

    def fail() -> None:
        with torch_ao.without_stack_traces():
            assert config.do_not_emit_stack_traces
            raise KeyError

    for before in (False, True):
        config.do_not_emit_stack_traces, saved = before, config.do_not_emit_stack_traces
        try:
            with pytest.raises(KeyError):
                fail()
            assert config.do_not_emit_stack_traces == before
        finally:
            config.do_not_emit_stack_traces = saved


@pytest.mark.parametrize(
    "message",
    [
        "torch.ao.quantization is deprecated and will be removed",
        "Please use quant_min; reduce_range will be deprecated in a future release",
        "To copy construct from a tensor, it is recommended to use sourceTensor.clone()",
        "Default qconfig of oneDNN backend with reduce_range of false may have accuracy issues",
        "Onednn backend on CPU without VNNI",
    ],
)
def test_what_torch_says_of_itself_is_not_shown(message: str) -> None:
    """Other warnings are, and these are outside."""
    with torch_ao.known_warnings():
        warnings.warn(message, UserWarning, stacklevel=1)
        with pytest.raises(UserWarning, match="^another$"):
            warnings.warn("another", UserWarning, stacklevel=1)
    with pytest.raises(UserWarning):
        warnings.warn(message, UserWarning, stacklevel=1)


def test_classes_that_fx_does_not_look_into() -> None:
    """All that are named."""
    assert torch_ao.opaque(torch.nn.LSTM, torch.nn.GRU).non_traceable_module_classes == [torch.nn.LSTM, torch.nn.GRU]
