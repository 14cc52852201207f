"""What ``qbench check`` says of a file, as one HTML page without a script."""

from __future__ import annotations

from pathlib import Path

from qbench.check import text
from qbench.check.finding import FileCheck, RuntimeCheck
from qbench.decide.names import backend_name
from qbench.files import atomic, output_file
from qbench.progress.table import TextTable
from qbench.report import html
from qbench.report.history_page import POLICY

_TONES = {"fault": "bad", "warning": "unsure", "note": ""}


def write_check_page(check: FileCheck, file: Path) -> None:
    """Writes the page whole; raises ``UsageError`` where it cannot be written."""
    with output_file.place_for(file):
        atomic.write_text(file, render(check))


def render(check: FileCheck) -> str:
    """The HTML text; the policy allows no source at all but inline styles. Names that stand in the file are escaped."""
    return html.fill(
        "check.jinja",
        policy=POLICY,
        file=check.file,
        sentence=f"{text.sum_up(check)}.",
        findings=TextTable(
            columns=("Code", "Severity", "What", "What to do"),
            rows=tuple((each.code, each.severity, each.text, each.advice) for each in check.findings),
            words=(0, 1, 2, 3),
        ),
        tones=tuple(_TONES[each.severity] for each in check.findings),
        runtimes=tuple(text.describe_runtime(runtime) for runtime in check.runtimes),
        comparisons=tuple(text.list_comparisons(check)),
        layers=tuple((_name(runtime), _list_layers(runtime)) for runtime in check.runtimes if runtime.layers),
    )


def _name(runtime: RuntimeCheck) -> str:
    return " ".join(filter(None, (backend_name(runtime.runtime), runtime.version)))


def _list_layers(runtime: RuntimeCheck) -> TextTable:
    """The layers that multiply, in the order in which they run."""
    return TextTable(
        columns=("Layer", "Operator", "Runs in", "Multiply-accumulates"),
        rows=tuple(
            (layer.name, layer.operator, layer.precision, "unknown" if layer.macs is None else f"{layer.macs:,}")
            for layer in runtime.layers
        ),
        words=(0, 1, 2),
    )
