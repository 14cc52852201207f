"""Whose code runs: that of a suite which the person names, or which this user ran here before.

A run's folder is data and may come from anybody, together with the suite that it names and that suite's Python; where
they lie proves nothing. ``qbench run`` notes what a suite made it execute in the user's own folder for state. What
starts from a run's folder executes only what stands there, or in a suite that the person names.

Noted are, of each suite, where it lies, and digests: each over its folder, what it says of a model, a training, the
data set or the score, and the files that this leads to, which are Python with what it imports from beside it, ONNX and
TorchScript.
What is built in is qbench's own code, and a plug-in is what the user installed; neither needs a note.
"""

from __future__ import annotations

import hashlib
import json
import os
from collections.abc import Collection, Iterator
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, Literal, get_args

from pydantic import TypeAdapter, ValidationError

from qbench import user_code
from qbench.cache.manifest import file_digest
from qbench.files import atomic, regular_file
from qbench.quant import training_code
from qbench.record.stored_run import SuiteInfo
from qbench.suite import Suite

Part = Literal["models", "postprocess", "data", "metric"]
PARTS: tuple[Part, ...] = get_args(Part)
LIST, MOST_SUITES, MOST_BYTES = "suites-run-here.json", 1000, 4 * 2**20
_LOCK_SECONDS = 10.0  # to write the list takes milliseconds


@dataclass(frozen=True, kw_only=True)
class Source:
    """What a suite says of something that is not built in: in words, and the sha256 over that and the files it names,
    as 64 hex digits."""

    text: str
    digest: str


@dataclass(frozen=True, kw_only=True)
class Noted:
    """A suite that was run: its file's absolute path (empty: it was a text), and the digests of its sources."""

    file: str
    sources: tuple[str, ...]


_NOTED: TypeAdapter[tuple[Noted, ...]] = TypeAdapter(tuple[Noted, ...])


def find_suite(folder: Path, info: SuiteInfo) -> Path:
    """Where the suite of the run in ``folder`` lies, as far as one can tell; a file there need not be, nor be the same.

    The path that a run was started with counts from the folder that one works in or, where that has none, from the one
    that holds the run's reports; else a suite that was run here may end with it and have the run's text.
    """
    file = Path(info.file)
    beside_reports = regular_file.real_path(folder).parent.parent.parent / file
    for candidate in (file, beside_reports):
        if candidate.is_file():
            return candidate
    for noted in reversed(_read_list()):
        path = Path(noted.file)
        if path.parts[-len(file.parts) :] == file.parts and _has_text(path, info.text):
            return path
    return file


def why_refused(suite: Suite, *, named: Suite | None = None, parts: Collection[Part] = PARTS) -> str | None:
    """Why these parts of a run's suite, as its file says them now, may not be executed; None where they may.

    ``named``: the suite in the file that the person names, without what a run's folder adds to it.
    """
    needed = list_sources(suite, parts)
    if not needed:
        return None
    allowed = {digest for noted in _read_list() for digest in noted.sources}
    allowed |= set() if named is None else {source.digest for source in list_sources(named, parts)}
    refused = [source.text for source in needed if source.digest not in allowed]
    if not refused:
        return None
    return f"{suite.file} names what you never ran here, or not as it is now ({'; '.join(refused)})"


def note_suite(suite: Suite) -> str | None:
    """Notes a suite that the person runs; the reason where it cannot be, and there is something to note."""
    import filelock

    file = str(Path(suite.file).absolute()) if Path(suite.file).is_file() else ""
    noted = Noted(file=file, sources=tuple(source.digest for source in list_sources(suite)))
    folder = _state_folder()
    try:
        if folder is None:
            raise OSError("no home folder is known, nor XDG_STATE_HOME an absolute path")
        folder.mkdir(parents=True, exist_ok=True, mode=0o700)
        folder.chmod(0o700)
        with filelock.FileLock(folder / f"{LIST}.lock", timeout=_LOCK_SECONDS):
            _write_list(folder / LIST, [*(each for each in _read_list() if each != noted), noted])
    except (OSError, filelock.Timeout) as error:
        if not noted.sources:
            return None
        return (
            f"that this suite was run here cannot be noted ({error}): to explain, gate or resume the run, name the "
            "suite again"
        )
    return None


def list_sources(suite: Suite, parts: Collection[Part] = PARTS) -> tuple[Source, ...]:
    """What these parts of a suite name beside what is built in."""
    sources = []
    for named in _list_named(suite):
        if named.part in parts:
            code = [] if named.python is None else user_code.read_sources(named.python)
            digest = _digest(suite.base, named.part, named.written, [*code, *named.files])
            sources.append(Source(text=f"{named.kind}: {_describe(named.written)}", digest=digest))
    return tuple(sources)


@dataclass(frozen=True, kw_only=True)
class _Named:
    """A part that is not built in: what it is called, what the suite says of it, the Python file and the other files
    that this names."""

    part: Part
    kind: str
    written: Any
    python: Path | None = None
    files: tuple[Path, ...] = ()


def _list_named(suite: Suite) -> Iterator[_Named]:
    for model, reference in zip(suite.models, suite.references(), strict=True):
        if model.source is None and model.weights is None and not model.int8:
            continue
        python, files = None, tuple(file.path for file in reference.int8)
        if reference.source == "python":
            python = reference.path
        elif reference.path is not None:
            files = (reference.path, *files)
        written = model.model_dump(mode="json", exclude_defaults=True, exclude={"name", "int8", "postprocess"})
        written |= {"int8": [asdict(file) for file in model.int8]} if model.int8 else {}
        yield _Named(part="models", kind=f"model {model.name}", written=written, python=python, files=files)
        if model.postprocess is not None:
            own = model.postprocess.model_dump(mode="json", exclude_defaults=True)
            python = _find_python(suite.base, model.postprocess.python)
            yield _Named(part="postprocess", kind=f"postprocess of {model.name}", written=own, python=python)
    qat = suite.quantize.qat
    for kind in training_code.KINDS:  # the losses and loops of the user's own that QAT calls
        targets = dict.fromkeys(getattr(keys, kind) for keys in (qat, *qat.backends.values()))
        for target in filter(training_code.is_python, targets):
            python = _find_python(suite.base, target)
            yield _Named(part="models", kind=f"QAT {kind}", written={"python": target}, python=python)
    dataset = suite.data.dataset
    if isinstance(dataset, dict):
        python = _find_python(suite.base, str(suite.data.value)) if suite.data.loader == "python" else None
        yield _Named(part="data", kind="data set", written=dataset, python=python)
    keys = getattr(suite.gate.accuracy.metric, "keys", None)
    if keys is not None:
        written = keys.model_dump(mode="json", exclude_defaults=True)
        yield _Named(part="metric", kind="score", written=written, python=_find_python(suite.base, keys.python))


def _find_python(base: Path, target: str) -> Path:
    """The file of ``file.py:function``."""
    return base / regular_file.expand_home(target.rpartition(":")[0])


def _digest(base: Path, part: Part, written: Any, files: Collection[Path]) -> str:
    contents = [(os.path.relpath(file, base), _digest_file(file)) for file in files]
    return hashlib.sha256(json.dumps([part, str(base), written, contents], default=str).encode()).hexdigest()


def _digest_file(file: Path) -> str:
    try:
        return file_digest(file)
    except OSError:
        return ""  # whatever reads it says what is wrong


def _describe(written: Any) -> str:
    text = ", ".join(f"{key}: {value}" for key, value in written.items() if isinstance(value, str)) or str(written)
    source = written.get("source")
    return _describe(source) if isinstance(source, dict) else text[:120]


def _state_folder() -> Path | None:
    """The user's own folder for what qbench remembers; None where only a relative path is known, which would lead to
    wherever one works."""
    import platformdirs

    folder = platformdirs.user_state_path("qbench")
    return folder if folder.is_absolute() else None


def _read_list() -> tuple[Noted, ...]:
    """The suites that were run here, the newest last; none where the list is damaged, or others may write it."""
    folder = _state_folder()
    if folder is None or not _is_private(folder):
        return ()
    try:
        return _NOTED.validate_json(regular_file.read_bytes(folder / LIST, MOST_BYTES))
    except (OSError, ValidationError):
        return ()


def _write_list(file: Path, suites: list[Noted]) -> None:
    """Writes the newest that fit."""
    lines = [json.dumps(asdict(each)) for each in suites[-MOST_SUITES:]]
    while len(text := f"[{','.join(lines)}]") > MOST_BYTES:
        lines.pop(0)
    atomic.write_text(file, text)


def _is_private(folder: Path) -> bool:
    """Whether nobody but this user can put a file there."""
    try:
        facts = folder.stat()
    except OSError:
        return False
    return not hasattr(os, "getuid") or (facts.st_uid == os.getuid() and not facts.st_mode & 0o022)


def _has_text(file: Path, text: str) -> bool:
    try:
        return regular_file.read_bytes(file).decode("utf-8-sig") == text
    except (OSError, UnicodeDecodeError):
        return False
