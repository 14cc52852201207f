"""The suite itself: its text, and the files that are written."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from qbench import suite
from qbench.errors import UsageError
from qbench.files import atomic, output_file
from qbench.first_suite.data_facts import Ask, DataFacts, describe_data
from qbench.first_suite.model_facts import InputFacts, ModelFacts, describe_model, quote

_MARGIN, _RANDOM = "1.0", "random inputs"
_WHERE = "Data: an image folder, an .npz or .csv file, a saved data set, file.py:function"
_LOSS = "Percentage points of {} that int8 may lose"


@dataclass(frozen=True, kw_only=True)
class FirstSuite:
    """The files that were written, ``code``: beside the suite; ``notes``: what was assumed."""

    file: Path
    code: Path | None
    notes: tuple[str, ...]

    @property
    def names(self) -> str:
        """The suite, and the code where there is some, joined for a sentence."""
        return " and ".join(str(path) for path in (self.file, self.code) if path is not None)


def write_first_suite(
    model: str, data: str | None, target: Path | None, *, force: bool = False, ask: Ask | None = None
) -> FirstSuite:
    """Writes a suite for a model and data, checked as every suite is. ``target``: its file (default: the model's name
    in the working folder); ``force``: files that are there are overwritten; ``ask`` is asked what nothing tells, three
    questions at most (None: it is assumed). Raises ``UsageError`` and ``DataError``."""
    folder = Path() if target is None else target.parent
    model_facts = describe_model(model, folder)
    if data is None and ask is not None:
        data = ask(_WHERE, _RANDOM)
        data = None if data == _RANDOM else data
    data_facts = describe_data(data, model_facts, folder, ask)
    file = target or folder / f"{model_facts.name}.yaml"
    code = None if data_facts.code is None else folder / data_facts.code[0]
    existing = [str(path) for path in (file, code) if path is not None and path.exists()]
    if existing and not force:
        verb = "is" if len(existing) == 1 else "are"
        raise UsageError(
            f"{' and '.join(existing)} {verb} there already: `qbench run {file}` runs the suite, `qbench init` writes "
            "another with -o FILE, or over it with --force"
        )
    margin = _MARGIN if ask is None or not data_facts.labelled else ask(_LOSS.format(data_facts.metric), _MARGIN)
    text = compose(model_facts, data_facts, margin)
    with output_file.place_for(file):
        if data_facts.code is not None:
            atomic.write_text(folder / data_facts.code[0], data_facts.code[1])
        atomic.write_text(file, text)
    suite.read(file)  # whatever is wrong in it is said as of any suite
    scalars = [entry.name for entry in model_facts.inputs if entry.axis is None]
    constants = [f"{name} is 1 in every call: write what it is in yours" for name in scalars]
    return FirstSuite(file=file, code=code, notes=(*data_facts.notes, *constants))


def compose(model: ModelFacts, data: DataFacts, margin: str) -> str:
    """The text of a suite; ``margin``: percentage points that int8 may lose. Raises ``UsageError`` where it is none."""
    if re.fullmatch(r"[0-9]+(\.[0-9]+)?", margin) is None:
        raise UsageError(f"{margin}: expected percentage points, a number such as 1 or 0.5")
    named = [f"  - name: {model.name}", f"    source: {model.source}"] if model.source else [f"  - {model.name}"]
    if data.postprocess is not None:
        named.append(f"    postprocess: {{python: {quote(data.postprocess)}}}")
    if any(entry.axis != 0 for entry in model.inputs):
        named += _write_inputs(model.inputs)
    modes = ", ".join(("fp32", *model.int8_modes))
    lines = [
        f"# Which int8 variant of {model.name} to ship on this CPU? Written by `qbench init`.",
        f"suite: {model.name}",
        "models:",
        *named,
        "data:",
        *(f"  # {note}" for note in data.notes),
        f"  dataset: {data.dataset}",
        f"  calibrate: {{split: {data.train}{'' if data.samples is None else f', samples: {data.samples}'}}}",
        f"  evaluate: {{split: {data.test}}}",
        "matrix:",
        f"  modes: [{modes}]",
        f"  backends: [{', '.join(model.backends)}]   # those that are installed here",
        *(f"  batch_sizes: [{size}]   # the only one that the file takes" for size in model.fixed_batch),
        "measure: {max_seconds: 5}   # for each case, a first look; the default, 30, gives narrower intervals",
    ]
    if data.labelled:
        lines += [
            "gate:",
            f"  accuracy: {{metric: {data.metric}, margin: {margin}}}"
            "   # percentage points that int8 may lose: your decision",
        ]
    if data.against_fp32 is not None:
        lines += ["gate:", f"  # {data.against_fp32}", "  accuracy: {metric: sqnr, at_least: 20}   # dB against fp32"]
    return "\n".join(lines) + "\n"


def _write_inputs(inputs: Sequence[InputFacts]) -> list[str]:
    """How each input is given, where that is not one example after the other along axis 0."""
    lines = ["    inputs:"]
    for entry in inputs:
        if entry.axis is None:
            lines.append(f"      {quote(entry.name)}: {{constant: 1}}   # assumed: write what it is in your calls")
        elif entry.axis:
            lines.append(f"      {quote(entry.name)}: {{axis: {entry.axis}}}   # its examples lie along this axis")
    return lines
