"""Layer by layer: what runs in int8 and what stayed in float, and which outputs are farthest from fp32."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from qbench import formatting
from qbench.modes import HALVES, WEIGHT_ONLY
from qbench.progress.table import TextTable
from qbench.quant.analysis.input_drift import CLIPPED
from qbench.record.layer_numbers import LayerNumbers
from qbench.record.schema import ArtifactFacts, Coverage, Record
from qbench.record.stored_run import StoredRun
from qbench.report.recipes import describe_recipe

WORST = 5  # layers of each case


def layers(records: Sequence[Record]) -> TextTable:
    """What stayed in float and why, and how a variant was made; int8 variants of which the same is said in one row."""
    grouped: dict[tuple[str, ...], dict[str, None]] = {}
    for record in records:
        coverage = record.artifact.coverage if record.artifact else None
        if record.status != "ok" or coverage is None:
            continue
        making = (
            record.case.model,
            f"{coverage.layers_of(record.case.mode)} of {coverage.layers_total}{_of_half(record.case.mode)}",
            coverage_text(coverage, record.case.mode),
            ", ".join(_float_layer(name, coverage.float_reasons) for name in coverage.float_layers) or "none",
            describe_recipe(record),
            _note(record.artifact),
        )
        grouped.setdefault(making, {})[record.case.variant] = None
    rows = tuple((", ".join(variants), *making) for making, variants in grouped.items())
    titles = ("variants", "model", "int8 layers", "work done in int8", "float layers", "recipe", "note")
    return TextTable(columns=titles, rows=rows, words=(0, 1, 4, 5, 6))


def coverage_text(coverage: Coverage, mode: str) -> str:
    """The share of multiply-accumulates in the format that a mode names, or why it is not known."""
    share = coverage.share_of(mode)
    if share is None and coverage.unknown:
        return f"not known: {coverage.unknown}"
    return f"{formatting.share(share)}{_of_half(mode)}"


def _of_half(mode: str) -> str:
    """`` in bf16`` where a mode names no int8; empty for int8, which the column names."""
    return f" in {mode}" if mode in HALVES else " with weights of few bits" if mode == WEIGHT_ONLY else ""


def worst(run: StoredRun) -> TextTable:
    """The ``WORST`` layers of each case by SQNR, and as many that clip most of the evaluation data, where the run kept
    the numbers of its layers; cases of one variant share theirs."""
    rows = []
    listed: set[str] = set()
    for record in run.records:
        if record.layers is None or record.layers in listed:
            continue
        listed.add(record.layers)
        rows += [
            (
                record.case.id,
                layer.name,
                formatting.DASH if layer.sqnr_db is None else f"{layer.sqnr_db:.1f}",
                formatting.DASH if layer.cosine is None else f"{layer.cosine:.4f}",
                f"{layer.n:,}" if layer.n else formatting.DASH,
                formatting.share(layer.clipped),
            )
            for layer in _choose_layers(run.layer_numbers(record))
        ]
    titles = ("case", "layer", "SQNR, dB", "cosine", "values compared", "clipped on evaluation data")
    return TextTable(columns=titles, rows=tuple(rows))


def _choose_layers(numbers: Sequence[LayerNumbers]) -> list[LayerNumbers]:
    """The farthest from fp32 first, then those that clip most."""
    compared = [(layer.sqnr_db, layer) for layer in numbers if layer.sqnr_db is not None]
    farthest = [layer for _, layer in sorted(compared, key=lambda pair: pair[0])[:WORST]]
    clipping = [layer for layer in numbers if (layer.clipped or 0) > CLIPPED]
    clipping.sort(key=lambda layer: -(layer.clipped or 0))
    return farthest + [layer for layer in clipping[:WORST] if layer not in farthest]


def _float_layer(name: str, reasons: Mapping[str, str]) -> str:
    return f"{name} ({reasons[name]})" if name in reasons else name


def _note(artifact: ArtifactFacts | None) -> str:
    """What a reader must know of a variant, and what its network was rewritten into before."""
    if artifact is None:
        return ""
    rewritten = f"rewritten: {', '.join(artifact.rewrites)}" if artifact.rewrites else ""
    return "; ".join(part for part in (artifact.note, rewritten) if part)
