"""Accuracy-based calibration: the fewest layers go back to float that keep a model's score within a loss.

Layers are ranked by how much each alone disturbs the outputs; a binary search finds how many of the most sensitive
ones have to be float, then each of these is tried in int8 again, so that none of the set can be spared. Everything
that took time stands in a ledger (``accuracy.json``): the same call goes on where a killed one ended.
"""

from __future__ import annotations

import contextlib
import math
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from qbench.errors import EvaluateError, UsageError
from qbench.onnx.search_log import Ledger, identity
from qbench.quant.onnx import needed_inputs, sensitivity, sites
from qbench.quant.onnx.calibration.batches import Feed
from qbench.quant.onnx.export.fake_quant import fake_quant
from qbench.quant.onnx.formats import config as config_file
from qbench.quant.onnx.formats import scale_record as record_file
from qbench.quant.onnx.graph.graph import Graph
from qbench.quant.onnx.graph.layers import layers as found_layers
from qbench.quant.onnx.settings import ActivationParams, Config, TensorConfig
from qbench.quant.onnx.sites import Record, Sites

Evaluator = Callable[[Path], float]  # an ONNX file -> its score, higher is better
Builder = Callable[[Graph, Sites, Record], Graph]
LEDGER, CONFIG, RECORD = "accuracy.json", "config.json", "record.txt"


@dataclass(frozen=True, kw_only=True)
class ScoredModel:
    """The score of the model with these layers in float, all others of the configuration in int8."""

    floats: tuple[str, ...]
    score: float


@dataclass(frozen=True, kw_only=True)
class Outcome:
    """What was found. ``met``: the target is met; if not, ``best`` has the highest score that was seen (of equal ones
    the fewest float layers). ``ranking``: layer and similarity, the most sensitive first. ``trials``: every model that
    was evaluated, in order. ``config`` and ``record`` are those of ``best``."""

    met: bool
    baseline: float
    best: ScoredModel
    ranking: tuple[tuple[str, float], ...]
    trials: tuple[ScoredModel, ...]
    config: Config
    record: Record


def search(
    graph: Graph,
    config: Config,
    record: Record,
    evaluate: Evaluator,
    feeds: Iterable[Feed],
    *,
    loss: float,
    folder: Path,
    build: Builder = fake_quant,
    max_trials: int | None = None,
    max_float: int | None = None,
) -> Outcome:
    """Finds the layers to leave in float so that the score is at most ``loss`` below the float model's, and writes
    ``config.json`` and ``record.txt`` of the best model so far, and the ledger, to ``folder``.

    ``graph``: prepared; ``record``: complete; ``evaluate``: scores an ONNX file, higher is better; ``feeds``: a few
    batches (input name -> array) that layers are ranked on; ``build``: makes the model that is scored, the fake-quant
    model by default. ``max_trials``, ``max_float``: at most so many models are scored, layers left in float. Raises
    ``UsageError`` for a ledger of another model, configuration or record, ``EvaluateError`` for a score that is no
    number.
    """
    if not loss >= 0:
        raise UsageError(f"loss: expected a number from 0 on, got {loss}")
    ledger = Ledger.open(folder / LEDGER, identity(graph, config, record, build))
    model = _Model(graph=graph, config=config, record=record, evaluate=evaluate, build=build)
    hunt = _Hunt(model=model, ledger=ledger, folder=folder, loss=loss, max_trials=max_trials, max_float=max_float)
    return hunt.run(list(feeds))


@dataclass(frozen=True, kw_only=True)
class _Model:
    """What is quantized and who judges it."""

    graph: Graph
    config: Config
    record: Record
    evaluate: Evaluator
    build: Builder

    @property
    def layers(self) -> tuple[str, ...]:
        return tuple(name for name, layer in self.config.layers.items() if layer.quant_enable)

    def score(self, floats: Collection[str] | None) -> float:
        """With these layers in float; None: the float model."""
        deployed = self.graph if floats is None else self.quantized(floats)
        with TemporaryDirectory() as directory:
            file = Path(directory) / "model.onnx"
            deployed.save(file)
            score = float(self.evaluate(file))
        if not math.isfinite(score):
            which = "the float model" if floats is None else f"the model with {len(floats)} layers in float"
            raise EvaluateError(f"the evaluator gave {score} for {which}; it has to return a finite score")
        return score

    def quantized(self, floats: Collection[str]) -> Graph:
        config, record = without(self.graph, self.config, self.record, floats)
        return self.build(self.graph, sites.find(self.graph, config), record)


def without(graph: Graph, config: Config, record: Record, floats: Collection[str]) -> tuple[Config, Record]:
    """Configuration and record with these layers in float. Inputs that were quantized because such a layer gave int8
    no longer are; the input of such a layer stays quantized where the layer that makes it gives int8."""
    layers = {
        name: replace(layer, quant_enable=layer.quant_enable and name not in floats)
        for name, layer in config.layers.items()
    }
    before, after = (_needed(graph, all_scales) for all_scales in (config.layers, layers))
    tensors = [tensor for tensor in config.tensor_quantize if _place(tensor) in after or _place(tensor) not in before]
    places = {_place(tensor) for tensor in tensors}
    returned = {(name, 0): config.layers[name].activation for name in floats if config.layers[name].quant_enable}
    added = [_tensor(place, params) for place, params in returned.items() if place in after and place not in places]
    reduced = replace(config, layers=layers, tensor_quantize=(*tensors, *added))
    all_scales = dict(record)
    for tensor in added:
        scales = replace(record[tensor.layer_name], scale_w=(), offset_w=(), balance=())
        all_scales[f"{tensor.layer_name}:{tensor.input_index}"] = scales
    names = {name for name, layer in layers.items() if layer.quant_enable}
    names |= {f"{tensor.layer_name}:{tensor.input_index}" for tensor in reduced.tensor_quantize}
    return reduced, {key: scales for key, scales in all_scales.items() if key in names}


def _needed(graph: Graph, layers: Mapping[str, Any]) -> set[tuple[str, int]]:
    """The inputs that have to be quantized for these layers to run in int8, as a default configuration has them."""
    enabled = {name for name, layer in layers.items() if layer.quant_enable}
    every = tuple(found_layers(graph))
    able = {layer.name for layer in every if layer.kind == "layer" and layer.reason is None}
    return set(needed_inputs.find(graph, {layer.name: layer.kind for layer in every}, enabled, able - enabled))


def _place(tensor: TensorConfig) -> tuple[str, int]:
    return tensor.layer_name, tensor.input_index


def _tensor(place: tuple[str, int], params: ActivationParams) -> TensorConfig:
    return TensorConfig(layer_name=place[0], input_index=place[1], activation=params)


class _Stopped(Exception):
    """No further model may be scored."""


@dataclass(kw_only=True)
class _Hunt:
    """The search; every score goes into the ledger as soon as it is known."""

    model: _Model
    ledger: Ledger
    folder: Path
    loss: float
    max_trials: int | None
    max_float: int | None

    def run(self, feeds: Sequence[Feed]) -> Outcome:
        if self.ledger.baseline is None:
            self.ledger.baseline = self.model.score(None)
            self.ledger.write()
        ranking = self._ranking(feeds)
        with contextlib.suppress(_Stopped):
            self._search([name for name, _ in ranking])
        best = self._best()
        config, record = self._write(best)
        trials = tuple(ScoredModel(floats=floats, score=score) for floats, score in self.ledger.scores.items())
        return Outcome(
            met=self._meets(best.score), baseline=self._baseline, best=best, ranking=ranking, trials=trials,
            config=config, record=record,
        )  # fmt: skip

    @property
    def _baseline(self) -> float:
        assert self.ledger.baseline is not None
        return self.ledger.baseline

    def _meets(self, score: float) -> bool:
        return self._baseline - score <= self.loss + 1e-12

    def _ranking(self, feeds: Sequence[Feed]) -> tuple[tuple[str, float], ...]:
        """The layers, the most sensitive first; of equal ones the earlier."""
        similarities, model = self.ledger.similarity, self.model
        missing = [name for name in model.layers if name not in similarities]
        if missing and not feeds:
            raise UsageError("accuracy-based calibration ranks layers on data: give at least one batch")
        expected = sensitivity.outputs(model.graph, feeds) if missing else []
        all_sites = sites.find(model.graph, model.config)
        for name in missing:
            similarities[name] = sensitivity.of_layer(model.graph, all_sites, model.record, name, feeds, expected)
            self.ledger.write()
        return tuple(sorted(((name, similarities[name]) for name in model.layers), key=lambda pair: pair[1]))

    def _search(self, ranked: list[str]) -> None:
        """Scores models until no float layer can be spared."""
        if self._trial([]):
            return
        most = len(ranked) if self.max_float is None else min(self.max_float, len(ranked))
        if not self._trial(ranked[:most]):
            return
        low, high = 0, most  # ``low`` float layers are too few, ``high`` are enough
        while high - low > 1:
            middle = (low + high) // 2
            low, high = (low, middle) if self._trial(ranked[:middle]) else (middle, high)
        floats = ranked[:high]
        for name in reversed(ranked[:high]):
            fewer = [layer for layer in floats if layer != name]
            if self._trial(fewer):
                floats = fewer

    def _trial(self, floats: Sequence[str]) -> bool:
        """Whether the model with these layers in float meets the target."""
        key = tuple(sorted(floats))
        if key not in self.ledger.scores:
            if self.max_trials is not None and len(self.ledger.scores) >= self.max_trials:
                raise _Stopped
            everything = len(key) == len(self.model.layers)
            self.ledger.scores[key] = self._baseline if everything else self.model.score(key)
            self.ledger.write()
            self._write(self._best())
        return self._meets(self.ledger.scores[key])

    def _best(self) -> ScoredModel:
        """Of the models that meet the target the one with the fewest float layers, else the one with the best score."""
        if not self.ledger.scores:
            raise UsageError("max_trials: at least one model has to be scored")
        trials = [ScoredModel(floats=floats, score=score) for floats, score in self.ledger.scores.items()]
        good = [trial for trial in trials if self._meets(trial.score)]
        if good:
            return min(good, key=lambda trial: (len(trial.floats), -trial.score))
        return max(trials, key=lambda trial: (trial.score, -len(trial.floats)))

    def _write(self, best: ScoredModel) -> tuple[Config, Record]:
        config, record = without(self.model.graph, self.model.config, self.model.record, best.floats)
        config_file.write(config, self.folder / CONFIG)
        record_file.write(record, self.folder / RECORD)
        return config, record
