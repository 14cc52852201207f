"""The suite itself: its text, and the files that are written."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from qbench import suite
from qbench.errors import UsageError
from qbench.first_suite.data_facts import DataFacts, describe_data
from qbench.first_suite.model_facts import ModelFacts, describe_model


@dataclass(frozen=True, kw_only=True)
class FirstSuite:
    """The files that were written; ``notes``: what was assumed."""

    file: Path
    code: Path | None
    notes: tuple[str, ...]


def write_first_suite(model: str, data: str | None, target: Path | None, *, force: bool = False) -> FirstSuite:
    """Writes a suite for a model and data, checked as every suite is. ``target``: its file (default: the model's name
    in the working folder); ``force``: files that are there are overwritten. Raises ``UsageError`` and ``DataError``."""
    folder = Path() if target is None else target.parent
    model_facts = describe_model(model, folder)
    data_facts = describe_data(data, model_facts, folder)
    file = target or folder / f"{model_facts.name}.yaml"
    code = None if data_facts.code is None else folder / data_facts.code[0]
    existing = [str(path) for path in (file, code) if path is not None and path.exists()]
    if existing and not force:
        verb = "is" if len(existing) == 1 else "are"
        raise UsageError(f"{' and '.join(existing)} {verb} there already: name another file with -o, or say --force")
    text = compose(model_facts, data_facts)
    if code is not None and data_facts.code is not None:
        code.write_text(data_facts.code[1], encoding="utf-8")
    file.write_text(text, encoding="utf-8")
    suite.read(file)  # whatever is wrong in it is said as of any suite
    return FirstSuite(file=file, code=code, notes=data_facts.notes)


def compose(model: ModelFacts, data: DataFacts) -> str:
    """The text of a suite."""
    named = [f"  - name: {model.name}", f"    source: {model.source}"] if model.source else [f"  - {model.name}"]
    modes = ", ".join(("fp32", *model.int8_modes))
    lines = [
        f"# Which int8 variant of {model.name} to ship on this CPU? Written by `qbench init`.",
        f"suite: {model.name}",
        "models:",
        *named,
        "data:",
        *(f"  # {note}" for note in data.notes),
        f"  dataset: {data.dataset}",
        f"  calibrate: {{split: {data.train}, samples: {data.samples}}}",
        f"  evaluate: {{split: {data.test}}}",
        "matrix:",
        f"  modes: [{modes}]",
        f"  backends: [{', '.join(model.backends)}]   # those that are installed here",
        "measure: {max_seconds: 5}   # for each case, a first look; the default, 30, gives narrower intervals",
    ]
    if data.labelled:
        lines += [
            "gate:",
            "  accuracy: {metric: top1, margin: 1.0}   # percentage points that int8 may lose: your decision",
        ]
    return "\n".join(lines) + "\n"
