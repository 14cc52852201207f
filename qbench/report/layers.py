"""Layer by layer: what runs in int8 and what stayed in float, and which outputs are farthest from fp32."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from qbench import wording
from qbench.quant.input_fit import CLIPPED
from qbench.record import ArtifactFacts, Coverage, Record
from qbench.report.text import TextTable
from qbench.stored import LayerNumbers, StoredRun

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
    return wording.share(coverage.macs_int8)


def worst(run: StoredRun) -> TextTable:
    """The ``WORST`` layers of each case by SQNR, and as many that clip most of the evaluation data, where the run kept
    the numbers of its layers; cases of one variant share theirs."""
    rows = []
    seen: set[str] = set()
    for record in run.records:
        if record.layers is None or record.layers in seen:
            continue
        seen.add(record.layers)
        rows += [
            (
                record.case.id,
                one.name,
                wording.DASH if one.sqnr_db is None else f"{one.sqnr_db:.1f}",
                wording.DASH if one.cosine is None else f"{one.cosine:.4f}",
                f"{one.n:,}" if one.n else wording.DASH,
                wording.share(one.clipped),
            )
            for one in _chosen(run.layer_numbers(record))
        ]
    titles = ("case", "layer", "SQNR, dB", "cosine", "values compared", "clipped on evaluation data")
    return TextTable(columns=titles, rows=tuple(rows))


def _chosen(numbers: Sequence[LayerNumbers]) -> list[LayerNumbers]:
    """The farthest from fp32 first, then those that clip most."""
    known = [(one.sqnr_db, one) for one in numbers if one.sqnr_db is not None]
    farthest = [one for _, one in sorted(known, key=lambda pair: pair[0])[:WORST]]
    clipping = sorted((one for one in numbers if (one.clipped or 0) > CLIPPED), key=lambda one: -(one.clipped or 0))
    return farthest + [one for one in clipping[:WORST] if one not in farthest]


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
