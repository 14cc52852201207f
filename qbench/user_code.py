"""An attribute of a user's own Python file, calls into it, and the files that it depends on.

The file is code that the user chose to run. It is imported under a name of its own, its folder comes first on
the import path while it loads and while it is called (as if Python ran it as a script), and whatever it raises
becomes one message with the file and line of the user's code.
"""

from __future__ import annotations

import ast
import contextlib
import difflib
import hashlib
import importlib
import importlib.machinery
import importlib.util
import os
import sys
import traceback
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from types import ModuleType
from typing import Any

from qbench.errors import QbenchError, first_names
from qbench.files import regular_file

PREFIX = "qbench_user_"
_ENDINGS = importlib.machinery.all_suffixes()  # a module beside the file may be native code, or bytecode alone
_FOLDERS: set[Path] = set()
_NO_CHILDREN = "daemonic processes are not allowed to have children"  # multiprocessing, in a daemon
_MOST_SAID = 500  # characters of a message: a table prints it, and a record keeps it


def parse(reference: Any, *, base: Path, error: type[QbenchError]) -> tuple[Path, str]:
    """The absolute file and the attribute of ``"file.py:name"``; relative files start at ``base``."""
    file, colon, name = reference.rpartition(":") if isinstance(reference, str) else ("", "", "")
    if not (file and colon and name.isidentifier()):
        raise error(f"python: expected 'file.py:function', got {reference!r}")
    return regular_file.resolve_path(file, base), name


def attribute(path: Path, name: str, *, error: type[QbenchError]) -> Any:
    """What ``name`` is bound to in the file after importing it; raises ``error`` with what to do."""
    module = _module(regular_file.real_path(path), error)
    if name in vars(module):
        return vars(module)[name]
    public = sorted(key for key, value in vars(module).items() if callable(value) and not key.startswith("_"))
    has = f"it has {first_names(public)}" if public else "it has no function"
    near = difflib.get_close_matches(name, public, n=1)
    hint = f"; did you mean '{near[0]}'?" if near else ";"
    raise error(f"{path}: no '{name}' in this file{hint} {has}")


def call(function: Callable[..., Any], *args: Any, path: Path, error: type[QbenchError], **kwargs: Any) -> Any:
    """What the user's function returns; anything it raises becomes ``error`` with the user's file and line."""
    with _importing_from(regular_file.real_path(path).parent), _explaining(regular_file.real_path(path), error):
        return function(*args, **kwargs)


def local_sources(path: Path) -> tuple[Path, ...]:
    """The user's own files that the file depends on, itself included, sorted.

    To those that ``read_sources`` gives comes what this process has loaded from the file's folder, so that an import by
    name or by an extended ``sys.path`` counts too.
    """
    path = regular_file.real_path(path)
    return tuple(sorted({*read_sources(path), *_loaded_below(path.parent)}))


def read_sources(path: Path) -> tuple[Path, ...]:
    """The file and those that it imports from its folder and below, sorted: followed in the text, nothing is run, so
    that every process says the same."""
    path = regular_file.real_path(path)
    sources = {path}
    pending = [path]
    while pending:
        new = _imports_of(pending.pop(), path.parent) - sources
        sources |= new
        pending.extend(new)
    return tuple(sorted(sources))


def digest(path: Path, sources: tuple[Path, ...] | None = None) -> str:
    """The sha256, as 64 hex digits, of the names (relative to the file) and texts of ``local_sources``, or of those
    that are given."""
    sha = hashlib.sha256()
    for source in local_sources(path) if sources is None else sources:
        text = regular_file.read_bytes(source)
        sha.update(
            f"{Path(os.path.relpath(source, regular_file.real_path(path).parent)).as_posix()}\0{len(text)}\0".encode()
        )
        sha.update(text)
    return sha.hexdigest()


def _module(path: Path, error: type[QbenchError]) -> ModuleType:
    try:
        text = regular_file.read_bytes(path)
    except OSError as problem:
        raise error(f"{path}: cannot read this Python file: {problem.strerror or problem}") from problem
    # The text is part of the name: a file that was edited is another module, not a stale one.
    name = f"{PREFIX}{path.stem}_{hashlib.sha256(str(path).encode() + text).hexdigest()[:16]}"
    if name in sys.modules:
        return sys.modules[name]
    loader = importlib.machinery.SourceFileLoader(name, str(path))
    spec = importlib.util.spec_from_loader(name, loader)
    assert spec is not None  # a loader was given
    module = importlib.util.module_from_spec(spec)
    module.__file__ = str(path)
    sys.modules[name] = module
    try:
        with _importing_from(path.parent), _explaining(path, error):
            # Compiled here, since a bytecode file is trusted by size and second, and would be left behind.
            exec(compile(text, str(path), "exec", dont_inherit=True), vars(module))
    except BaseException:  # half a module must not stay, whatever stopped it
        del sys.modules[name]
        raise
    return module


@contextlib.contextmanager
def _explaining(path: Path, error: type[QbenchError]) -> Iterator[None]:
    try:
        yield
    except (error, MemoryError):  # what limited the memory says it better
        raise
    except SyntaxError as problem:
        where = f"{problem.filename}:{problem.lineno}" if problem.filename else str(path)
        raise error(f"{where}: SyntaxError: {problem.msg}") from problem
    except (Exception, SystemExit) as problem:  # the user's code can raise anything, exit() included
        where, message = _line_of(problem, path), _message_of(problem)
        raise error(f"{where}: {type(problem).__name__}{message}{_advise(problem, message, path)}") from problem


def _advise(problem: BaseException, message: str, path: Path) -> str:
    if isinstance(problem, ModuleNotFoundError):
        return f"; install it, or put it beside {path.name}"
    if _NO_CHILDREN in message:
        return "; it runs in a child process of qbench, which can start no more: set num_workers=0 in its DataLoader"
    return ""


def _message_of(problem: BaseException) -> str:
    """What the user's code says of its error, in one line that can be written; nothing where it says nothing."""
    try:
        said = " ".join(str(problem).split())
    except Exception as another:  # the user's __str__
        said = f"its text cannot be read: {type(another).__name__}"
    said = said.encode(errors="backslashreplace").decode()
    return f": {said[:_MOST_SAID]}" if said else ""


def _line_of(problem: BaseException, path: Path) -> str:
    """``file:line`` of the innermost frame in the user's folder: libraries below it are not the user's."""
    frames = traceback.extract_tb(problem.__traceback__)
    own = [frame for frame in frames if _is_own(Path(frame.filename), path.parent)]
    return f"{own[-1].filename}:{own[-1].lineno}" if own else str(path)


@contextlib.contextmanager
def _importing_from(folder: Path) -> Iterator[None]:
    _add_folder(folder)
    _forget_namesakes(folder)
    importlib.invalidate_caches()
    sys.path.insert(0, str(folder))
    try:
        yield
    finally:
        sys.path.remove(str(folder))
        if str(folder) not in sys.path:
            sys.path.append(str(folder))  # for imports inside functions that run later, such as forward()


class _TextLoader(importlib.machinery.SourceFileLoader):
    """Compiles a module's text: a bytecode file in ``__pycache__`` is trusted by size and second, and could be other
    code than the text that was noted."""

    def path_stats(self, path: str) -> Mapping[str, Any]:
        """Without these importlib neither reads nor writes bytecode."""
        raise OSError(f"{path}: its bytecode is not used")


_LOADERS: tuple[tuple[type[Any], list[str]], ...] = (
    (importlib.machinery.ExtensionFileLoader, importlib.machinery.EXTENSION_SUFFIXES),
    (_TextLoader, importlib.machinery.SOURCE_SUFFIXES),
    (importlib.machinery.SourcelessFileLoader, importlib.machinery.BYTECODE_SUFFIXES),
)


def _add_folder(folder: Path) -> None:
    """From now on modules from this folder and below are loaded as text."""
    if _find_own not in sys.path_hooks:
        sys.path_hooks.insert(0, _find_own)
    if folder not in _FOLDERS:
        _FOLDERS.add(folder)
        for place in [
            place for place in sys.path_importer_cache if regular_file.real_path(Path(place)).is_relative_to(folder)
        ]:
            del sys.path_importer_cache[place]


def _find_own(place: str) -> importlib.machinery.FileFinder:
    """What finds modules in a place on the import path; raises ``ImportError`` for one that is no user's folder."""
    if not any(_is_own(regular_file.real_path(Path(place)) / "x.py", folder) for folder in _FOLDERS):
        raise ImportError(place)
    return importlib.machinery.FileFinder(place, *_LOADERS)


def _forget_namesakes(folder: Path) -> None:
    """Unloads modules of other users' folders that have the name of a file here (each has its ``utils.py``)."""
    for entry in folder.iterdir():
        file = entry / "__init__.py" if entry.is_dir() else entry
        loaded = sys.modules.get(entry.stem)
        origin = getattr(loaded, "__file__", None)
        if file.suffix != ".py" or origin is None or Path(origin) == file:
            continue
        if any(Path(origin).is_relative_to(other) for other in _FOLDERS):
            for name in [name for name in sys.modules if name.partition(".")[0] == entry.stem]:
                del sys.modules[name]


def _imports_of(source: Path, folder: Path) -> set[Path]:
    try:
        tree = ast.parse(regular_file.read_bytes(source), str(source))
    except (OSError, SyntaxError, ValueError):
        return set()  # loading it says what is wrong; here it only depends on nothing more
    imported: set[Path] = set()
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            for alias in node.names:
                imported |= _files_of(folder, alias.name.split("."))
        elif isinstance(node, ast.ImportFrom):
            start = source.parents[node.level - 1] if node.level else folder
            parts = node.module.split(".") if node.module else []
            for alias in node.names:
                imported |= _files_of(start, [*parts, alias.name])
    return imported


def _files_of(start: Path, parts: list[str]) -> set[Path]:
    """Files that importing ``a.b.c`` from a folder runs: each package's ``__init__.py``, and the module."""
    files = set[Path]()
    for depth in range(1, len(parts) + 1):
        place = start.joinpath(*parts[:depth])
        files |= {place.with_name(f"{place.name}{ending}") for ending in _ENDINGS}
        files |= {place / f"__init__{ending}" for ending in _ENDINGS}
    return {regular_file.real_path(file) for file in files if file.is_file()}


def _loaded_below(folder: Path) -> set[Path]:
    origins = [
        getattr(module, "__file__", None)
        for name, module in list(sys.modules.items())
        if not name.startswith(PREFIX)  # another file that was asked for by itself is not a dependency
    ]
    return {Path(origin) for origin in origins if origin and _is_own(Path(origin), folder)}


def _is_own(file: Path, folder: Path) -> bool:
    """Whether a file is source of the user's folder, not of an environment or of qbench inside it."""
    environments = [Path(prefix) for prefix in (sys.prefix, sys.base_prefix) if Path(prefix).is_relative_to(folder)]
    foreign = [*environments, Path(__file__).parent]
    return (
        file.suffix == ".py"
        and file.is_relative_to(folder)
        and not {"site-packages", "dist-packages"} & set(file.relative_to(folder).parts)
        and not any(file.is_relative_to(other) for other in foreign)
    )
