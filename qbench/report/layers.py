"""Layer by layer: what runs in int8 and what stayed in float, and which outputs are farthest from fp32."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from qbench import formatting
from qbench.progress.table import TextTable
from qbench.quant.analysis.input_drift import CLIPPED
from qbench.record.layer_numbers import LayerNumbers
from qbench.record.schema import ArtifactFacts, Coverage, Record
from qbench.record.stored_run import StoredRun

WORST = 5  # layers of each case
# Choices that are told only where they are made.
UNUSUAL = ("first_layer_float", "last_layer_float", "framework_default", "symmetric", "distill")


def layers(records: Sequence[Record]) -> TextTable:
    """What stayed in float and why, and how the variant was made, for each int8 case."""
    rows = []
    for record in records:
        coverage = record.artifact.coverage if record.artifact else None
        if record.status != "ok" or coverage is None:
            continue
        rows.append(
            (
                record.case.id,
                f"{coverage.layers_int8} of {coverage.layers_total}",
                coverage_text(coverage),
                ", ".join(_float_layer(name, coverage.float_reasons) for name in coverage.float_layers) or "none",
                ", ".join(
                    f"{key} {_shown(value)}"
                    for key, value in (record.recipe or {}).items()
                    if value is not False or key not in UNUSUAL
                ),
                _note(record.artifact),
            )
        )
    titles = ("case", "int8 layers", "coverage", "float layers", "recipe", "note")
    return TextTable(columns=titles, rows=tuple(rows))


def coverage_text(coverage: Coverage) -> str:
    """The share of multiply-accumulates in int8, or why it is not known."""
    if coverage.macs_int8 is None and coverage.unknown:
        return f"not known: {coverage.unknown}"
    return formatting.share(coverage.macs_int8)


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
    known = [(layer.sqnr_db, layer) for layer in numbers if layer.sqnr_db is not None]
    farthest = [layer for _, layer in sorted(known, key=lambda pair: pair[0])[:WORST]]
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


def _shown(value: object) -> str:
    if isinstance(value, bool):
        return "yes" if value else "no"
    return ", ".join(map(str, value)) if isinstance(value, list | tuple) else str(value)
