"""How much of what its core can do a case does; and the files of a case in the run's folder."""

from __future__ import annotations

from qbench import formatting
from qbench.compare import above_peak
from qbench.decide import cases
from qbench.report.cells import CaseRow, Cell
from qbench.report.columns.column import Family


def _rate(row: CaseRow) -> float | None:
    roofline, typical = row.record.roofline, cases.p50(row.record)
    return None if roofline is None or not roofline.macs or not typical else 2 * roofline.macs / typical


def _peak(row: CaseRow) -> float | None:
    rate, roofline = _rate(row), row.record.roofline
    return rate / roofline.peak_fraction if rate and roofline and roofline.peak_fraction else None


family = Family()

family.list("""
[roofline.]
macs|count||multiply-accumulates of one call
""")


@family.drawn(
    "peak_fraction|number||share of this core's measured peak: of fp32 for fp32, of int8 for the others",
    title="of this core's peak",
)
def _peak_fraction(row: CaseRow) -> Cell:
    return Cell(text=above_peak.describe(row.record) or formatting.DASH)


family.list(
    """
peak_shared|flag||something else used the core while the peak was measured: the share is too high
operations_per_second|number|1/s|two for each multiply-accumulate
peak_per_second|number|1/s|the peak that `peak_fraction` is a share of, all threads together
[]
samples|text||file of every timed call, in the run's folder
predictions|text||file of every output
layers|text||file of the numbers of each layer
started|text||when the case was begun, UTC
""",
    {"operations_per_second": _rate, "peak_per_second": _peak},
)
