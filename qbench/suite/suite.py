"""The suite itself: from a file or a text to a ``Suite``, or to every problem at once."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from pydantic import Field, PrivateAttr, ValidationError

from qbench.errors import SuiteError, UsageError, first_names
from qbench.files import regular_file
from qbench.models.base import ModelReference
from qbench.record.schema import NATIVE
from qbench.suite import cross_checks, data_checks, int8_files, messages, npz_checks
from qbench.suite import overrides as given
from qbench.suite import quick as quick_look
from qbench.suite import yaml_tree as yaml_text
from qbench.suite.gate import GateSpec
from qbench.suite.models_and_data import DataSpec, ModelItem
from qbench.suite.recipes import DEFAULT_CHOICE, RecipeChoices
from qbench.suite.settings import UNIQUE, DecideSpec, EvaluateKeys, Limits, Matrix, MeasureSpec, Quantize
from qbench.suite.types import HostName, Names, Section, SuiteName


class Suite(Section):
    """A qbench suite: models, data, a matrix, how to measure, what to gate, how to decide."""

    suite: SuiteName = Field(description="The suite's name; its runs land in reports/<name>/.")
    models: tuple[ModelItem, ...] = Field(min_length=1, description="The models, each name once.")
    data: DataSpec = Field(description="The data set, and which of its examples serve what.")
    matrix: Matrix = Field(description="What to cross with the models; `{}` takes every mode and backend.")
    quantize: Quantize = Field(Quantize(), description="How models become int8, by mode.")
    hosts: tuple[HostName, ...] = Field(
        (NATIVE,),
        min_length=1,
        description="Where artifacts are evaluated and measured: native is this machine; avx2 and avx512 are this CPU "
        "limited to older instructions by the engines' own switches; qemu:<CPU>, such as qemu:Haswell or "
        "qemu:arm64-max, is a CPU that qemu-user emulates.",
        json_schema_extra=UNIQUE,
    )
    recipe: RecipeChoices = Field(
        (DEFAULT_CHOICE,), description="One recipe or several to compare; by name, or by the keys that they set."
    )
    evaluate: EvaluateKeys = Field(EvaluateKeys(), description="What is evaluated beside predictions.")
    measure: MeasureSpec = Field(MeasureSpec(), description="How latency is measured.")
    gate: GateSpec = Field(GateSpec(), description="What `qbench gate` demands.")
    decide: DecideSpec = Field(DecideSpec(), description="What is shipped.")
    limits: Limits = Field(Limits(), description="What one case may take.")

    _file: str = PrivateAttr("<text>")
    _text: str = PrivateAttr("")
    _overrides: tuple[str, ...] = PrivateAttr(())
    _quick: bool = PrivateAttr(False)
    _labelled: bool = PrivateAttr(True)
    _root: yaml_text.Node = PrivateAttr(yaml_text.NOTHING)

    @property
    def file(self) -> str:
        """The file as it was named, or what ``parse`` was told."""
        return self._file

    @property
    def text(self) -> str:
        """The YAML text as read."""
        return self._text

    @property
    def overrides(self) -> tuple[str, ...]:
        """The ``KEY=VALUE`` overrides: those of a quick look, then as given."""
        return self._overrides

    @property
    def quick(self) -> bool:
        """Whether this is a quick look at the suite."""
        return self._quick

    @property
    def labelled(self) -> bool:
        """Whether the evaluation examples may have labels, as far as is known before they are read."""
        return self._labelled

    @property
    def base(self) -> Path:
        """The suite's folder, absolute: relative paths in the suite start there."""
        return _folder(self._file)

    def place(self, key: str) -> str:
        """``file:line`` of a key such as ``gate.accuracy.margin``, or of its nearest ancestor that is given."""
        return str(self._root.mark_of(yaml_text.path_of(key)))

    def take_rules(self, current: Suite) -> Suite:
        """This suite with the gate of another reading of its file; ``place`` gives the lines of that one."""
        suite = self.model_copy(update={"gate": current.gate})
        suite._file, suite._root = current._file, current._root
        return suite

    def list_changes(self, other: Suite) -> list[str]:
        """The sections in which another suite says something else."""
        return [name for name in type(self).model_fields if getattr(self, name) != getattr(other, name)]

    def references(self) -> tuple[ModelReference, ...]:
        """The models in the suite's order, paths absolute."""
        return tuple(model.reference(self.base) for model in self.models)


def parse(
    text: str,
    *,
    file: str = "<text>",
    overrides: Sequence[str] = (),
    stored: bool = False,
    quick: bool = False,
) -> Suite:
    """The suite in a YAML text; raises ``SuiteError`` with every problem.

    ``overrides`` are ``KEY=VALUE`` with YAML values, applied before anything is checked. Where ``file`` is a
    file on disk, the files that the suite names must exist too; not so for the ``stored`` text of a run, which is
    judged where its model and data are not. ``quick`` puts in what a quick look changes, before the overrides.
    """
    overrides = (*(quick_look.OVERRIDES if quick else ()), *overrides)
    root, problems = yaml_text.read_text(text, file=file)
    root, more = given.override(root, overrides)
    problems += more
    suite = None
    try:
        suite = Suite.model_validate(root.plain(), context=Names(stored=stored))
    except ValidationError as error:
        problems += messages.problems(error, root, Suite)
    base = _folder(file) if Path(file).is_file() and not stored else None
    problems += cross_checks.problems(root, base=base) + data_checks.problems(root, base=base)
    problems += int8_files.problems(root, base=base)
    problems += npz_checks.problems(root, base=base)
    if suite is None or problems:
        raise SuiteError(problems)
    suite._file, suite._text, suite._overrides, suite._root = file, text, overrides, root
    suite._quick = quick
    suite._labelled = base is None or not npz_checks.lacks_labels(suite.data, base)
    return suite


def read(path: Path | str, overrides: Sequence[str] = (), *, quick: bool = False, stored: bool = False) -> Suite:
    """The suite in a file; raises ``UsageError`` where it cannot be read, ``SuiteError`` where it is wrong. ``stored``:
    it is read for the run that was made of it, as ``parse`` says."""
    path = Path(path)
    try:
        with regular_file.open_file(path) as stream:
            data = stream.read(yaml_text.MAX_BYTES + 1)
    except OSError as error:
        raise UsageError(f"{path}: cannot read the suite: {error.strerror or error}{_suggest_suites(path)}") from error
    if len(data) > yaml_text.MAX_BYTES:
        raise SuiteError([yaml_text.Mark(str(path), 1, 1).problem(yaml_text.TOO_LARGE)])
    try:
        text = data.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        before = data[: error.start]
        mark = yaml_text.Mark(str(path), before.count(b"\n") + 1, error.start - before.rfind(b"\n"))
        raise SuiteError([mark.problem("not UTF-8; save the file as UTF-8")]) from error
    return parse(text, file=str(path), overrides=overrides, quick=quick, stored=stored)


def _suggest_suites(path: Path) -> str:
    """The suite that is meant by a path that is none, where only its ending differs; else the suites beside it."""
    if path.is_dir():
        folder, text = path, "name a file in it"
    else:
        meant = next((file for ending in (".yaml", ".yml") if (file := path.with_suffix(ending)).is_file()), None)
        if meant is not None:
            return f"; did you mean {meant}?"
        folder, text = path.parent, "there are"
    files = sorted(str(file) for ending in ("*.yaml", "*.yml") for file in folder.glob(ending))
    return f"; {text}: {first_names(files)}" if files else ""


def _folder(file: str) -> Path:
    """The folder of a file, absolute; that of the link where the file itself is a link."""
    return regular_file.real_path(Path(file).absolute().parent)


def json_schema() -> dict[str, Any]:
    """The JSON Schema (draft 2020-12) of a suite file, for editors."""
    schema = Suite.model_json_schema()
    return {"$schema": "https://json-schema.org/draft/2020-12/schema", **schema}
