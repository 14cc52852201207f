"""What is shipped: its bytes, how much of it runs in int8, how it was made."""

from __future__ import annotations

from dataclasses import replace

from qbench import formatting
from qbench.compare import int8_share
from qbench.modes import HALVES, WEIGHT_ONLY
from qbench.report.cells import CaseRow, Cell
from qbench.report.columns.column import Family

family = Family()

family.list("""
[artifact.]
format|text||the format of the file that is shipped
sha256|text||digest of its content
""")


@family.drawn(
    "size_bytes|count|bytes|exactly what is shipped|size",
    key="size",
    note="size",
    card="size against fp32",
    hint="exact bytes of what is shipped",
)
def _size(row: CaseRow) -> Cell:
    if row.record.artifact is None:
        return Cell()
    size = row.record.artifact.size_bytes
    return Cell(text=formatting.size(size), sort=size, hint=f"{size:,} bytes")


@family.drawn(
    "coverage.macs_int8|number|0 to 1|work done in int8 (coverage): share of the multiply-accumulates"
    "|work done in int8",
    key="coverage",
    note="in int8",
    hint="the share of multiply-accumulates that really run in int8 (coverage), read from the artifact",
)
def _coverage(row: CaseRow) -> Cell:
    coverage = row.record.artifact.coverage if row.record.artifact else None
    if coverage is None:
        return Cell()
    mode = row.record.case.mode
    layers, share = f"{coverage.layers_of(mode)} of {coverage.layers_total} layers", coverage.share_of(mode)
    if share is None:
        return Cell(text="not known", hint=coverage.unknown or layers, tone="unsure")
    if mode in HALVES or mode == WEIGHT_ONLY:
        int8 = formatting.share(coverage.macs_int8)
        other = f"{coverage.weight_bits}-bit weights" if mode == WEIGHT_ONLY else f"in {mode}"
        return Cell(
            text=f"{int8}, {formatting.share(share)} {other}", sort=coverage.macs_int8, hint=f"{layers} {other}"
        )
    cell = Cell(text=formatting.share(share), sort=share, hint=layers)
    if (why := int8_share.explain_fp32_in_effect(row.record)) is not None:
        return replace(cell, limits=int8_share.FP32_IN_EFFECT, hint=f"{layers}; {why}", tone="bad")
    return replace(cell, tone="bad") if share == 0 else cell


family.list("""
coverage.layers_int8|count||layers that run in int8
coverage.macs_half|number|0 to 1|of a bf16 or fp16 case: share of the multiply-accumulates in that format
coverage.layers_half|count||layers in it
coverage.macs_weights|number|0 to 1|of a weight_only case: share of the multiply-accumulates whose weights have few bits
coverage.layers_weights|count||layers whose weights have
coverage.weight_bits|count||how many bits
coverage.layers_total|count||layers that could
coverage.float_layers|text||names of the layers that stayed in float, separated by `;`
coverage.float_reasons|text||why, as a JSON mapping from layer to reason
coverage.unknown|text||why the share of the work is not known
key|text||key of the artifact in the cache
cached|flag||taken from the cache, not built in this run
note|text||what a reader should know of the variant
flow|text||which flow made it: `fx`, `eager`, `pt2e` or `onnx`
rewrites|text||what the network was rewritten into before it was quantized, separated by `;`
rewrite_difference|number||how far the outputs moved by that
target.cpus|text||kinds of CPU that it was made for beside the one that built it
target.layers|count||layers whose sums of products were looked at for them
target.layers_narrowed|count||those that got wider steps for weights, so that no sum overflows there
target.channels_narrowed|count||their channels with a wider step
target.overflowing|text||layers whose sums may overflow there all the same
target.compiled_for|text||the CPU that its machine code is for
""")
