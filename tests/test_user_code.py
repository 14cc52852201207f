"""A user's own Python file: loading, calling, errors with the user's line, and what it depends on."""

from __future__ import annotations

import importlib.util
import multiprocessing
import os
import py_compile
import sys
from collections.abc import Iterator
from pathlib import Path
from textwrap import dedent

import pytest

from qbench import user_code
from qbench.errors import DataError, ModelError


@pytest.fixture(autouse=True)
def _clean_imports(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Loading puts folders on the import path and modules into sys.modules; no test sees another's."""
    monkeypatch.setattr(sys, "path", list(sys.path))
    before = dict(sys.modules)
    yield
    for name in set(sys.modules) - set(before):
        del sys.modules[name]


def write(folder: Path, name: str, text: str) -> Path:
    """A file with the given text; folders are made as needed."""
    file = folder / name
    file.parent.mkdir(parents=True, exist_ok=True)
    file.write_text(dedent(text), encoding="utf-8")
    return file


def test_reference_is_a_file_below_the_suites_folder_and_a_name(tmp_path: Path) -> None:
    """`file.py:name` gives an absolute file, relative to the suite, and the attribute."""
    assert user_code.parse("sub/a.py:load", base=tmp_path, error=DataError) == (tmp_path / "sub/a.py", "load")


@pytest.mark.parametrize("reference", ["a.py", "a.py:", ":load", "a.py:not a name", 3, None])
def test_bad_reference_says_what_is_expected(reference: object, tmp_path: Path) -> None:
    """Anything but `file.py:name` is refused with the form that is expected."""
    with pytest.raises(DataError, match=r"expected 'file\.py:function'"):
        user_code.parse(reference, base=tmp_path, error=DataError)


def test_missing_file_and_missing_attribute_are_named(tmp_path: Path) -> None:
    """A file that is not there is named; a function that is not there is answered with those that are."""
    (tmp_path / "loop.py").symlink_to("loop.py")
    with pytest.raises(ModelError, match=r"loop\.py: cannot read this Python file: Too many levels of symbolic links"):
        user_code.attribute(tmp_path / "loop.py", "build", error=ModelError)
    with pytest.raises(ModelError, match=r"none\.py: cannot read this Python file: No such file"):
        user_code.attribute(tmp_path / "none.py", "build", error=ModelError)
    file = write(tmp_path, "net.py", "def make(): ...\ndef _hidden(): ...\n")
    with pytest.raises(ModelError, match=r"no 'build' in this file; it has make$"):
        user_code.attribute(file, "build", error=ModelError)
    with pytest.raises(ModelError, match=r"no 'mak' in this file; did you mean 'make'\? it has make$"):
        user_code.attribute(file, "mak", error=ModelError)
    with pytest.raises(ModelError, match=r"no 'build' in this file; it has no function$"):
        user_code.attribute(write(tmp_path, "empty.py", "x = 1\n"), "build", error=ModelError)


UNREADABLE = "class E(Exception):\n    def __str__(self): return 1 / 0\nraise E\n"


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("raise ValueError('x' * 501)\n", rf"net\.py:1: ValueError: {'x' * 500}$"),
        ("raise ValueError\n", r"net\.py:1: ValueError$"),
        ("raise SyntaxError('by hand')\n", r"net\.py: SyntaxError: by hand$"),
        (UNREADABLE, r"net\.py:3: E: its text cannot be read: ZeroDivisionError$"),
        ("x = 1\ny = x / 0\n", r"net\.py:2: ZeroDivisionError: division by zero$"),
        ("def f(:\n", r"net\.py:1: SyntaxError: "),
        ("import surely_not_installed\n", r"net\.py:1: ModuleNotFoundError: .*; install it, or put it beside net\.py"),
        ("import sys\nsys.exit('bye')\n", r"net\.py:2: SystemExit: bye$"),
        ("import json\n\njson.loads('{')\n", r"net\.py:3: JSONDecodeError: "),
    ],
)
def test_a_failing_import_names_the_users_own_line(text: str, expected: str, tmp_path: Path) -> None:
    """What goes wrong while the file loads is told with the line of the user's file, not of a library below."""
    with pytest.raises(ModelError, match=expected):
        user_code.attribute(write(tmp_path, "net.py", text), "f", error=ModelError)


def test_memory_that_runs_out_is_no_fault_of_the_code(tmp_path: Path) -> None:
    """What limited it says it better."""
    with pytest.raises(MemoryError):
        user_code.attribute(write(tmp_path, "net.py", "raise MemoryError\n"), "build", error=ModelError)


def test_half_a_module_does_not_stay(tmp_path: Path) -> None:
    """The next try runs the file again; its folder is searched last from then on."""
    file, before = write(tmp_path, "net.py", "import flag\nif flag.bad: raise ValueError\ndone = True\n"), sys.path[:]
    write(tmp_path, "flag.py", "bad = True\n")
    for _ in range(2):
        with pytest.raises(ModelError, match="ValueError"):
            user_code.attribute(file, "done", error=ModelError)
    sys.modules["flag"].bad = False  # type: ignore[attr-defined]  # a module of the test's
    assert user_code.attribute(file, "done", error=ModelError) is True
    assert sys.path == [*before, str(tmp_path)]


def test_a_failing_call_names_the_line_in_the_users_sibling(tmp_path: Path) -> None:
    """The innermost frame of the user's folder is named, also when it is in a file that was imported."""
    write(tmp_path, "helper.py", "def work(n):\n    return 1 / n\n")
    file = write(tmp_path, "data.py", "import helper\ndef load(split):\n    return helper.work(0)\n")
    load = user_code.attribute(file, "load", error=DataError)
    with pytest.raises(DataError, match=r"helper\.py:2: ZeroDivisionError"):
        user_code.call(load, "train", path=file, error=DataError)


def test_workers_that_a_process_of_qbench_cannot_start_have_their_way_out(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A DataLoader with workers fails in a daemon, as each child process of qbench is one: the message says how not."""
    file = tmp_path / "mine.py"
    file.write_text(
        "import torch\n\ndef build():\n    for _ in torch.utils.data.DataLoader([1, 2], num_workers=1):\n        pass\n"
    )
    monkeypatch.setitem(multiprocessing.current_process()._config, "daemon", True)
    with pytest.raises(ModelError, match=r"mine\.py:4: AssertionError: daemonic .* num_workers=0 in its Data"):
        user_code.call(user_code.attribute(file, "build", error=ModelError), path=file, error=ModelError)


def test_siblings_of_the_same_name_in_two_folders_are_kept_apart(tmp_path: Path) -> None:
    """A model's `utils.py` and a data set's `utils.py` do not shadow each other, when loading and when calling."""
    for name in ("one", "two"):
        write(tmp_path, f"{name}/utils.py", f"NAME = '{name}'\n")
        for other in ("a.txt", "b.py", "notes.md", "y.py", "z.json"):  # a folder is read in any order
            write(tmp_path, f"{name}/{other}", "")
        write(
            tmp_path,
            f"{name}/file.py",
            """
            import utils
            AT_LOAD = utils.NAME
            def late():
                import utils
                return AT_LOAD, utils.NAME
            """,
        )
    files = [tmp_path / "one/file.py", tmp_path / "two/file.py"]
    functions = [user_code.attribute(file, "late", error=DataError) for file in files]
    results = [
        user_code.call(function, path=file, error=DataError) for function, file in zip(functions, files, strict=True)
    ]
    assert results == [("one", "one"), ("two", "two")]


def test_packages_of_the_same_name_in_two_folders_are_kept_apart(tmp_path: Path) -> None:
    """A sibling may be a folder with an `__init__.py`; what was loaded of the one of that name goes with it."""
    for name in ("one", "two"):
        write(tmp_path, f"{name}/layers/__init__.py", "")
        write(tmp_path, f"{name}/layers/names.py", f"NAME = '{name}'\n")
        write(tmp_path, f"{name}/file.py", "from layers.names import NAME\n")
    files = [tmp_path / "one/file.py", tmp_path / "two/file.py"]
    assert [user_code.attribute(file, "NAME", error=DataError) for file in files] == ["one", "two"]


def test_a_namesake_of_a_library_unloads_no_library(tmp_path: Path) -> None:
    """What qbench has imported stays one module, whatever a user's folder holds."""
    import colorsys

    write(tmp_path, "colorsys.py", "NAME = 'mine'\n")
    user_code.attribute(write(tmp_path, "file.py", "VALUE = 1\n"), "VALUE", error=DataError)
    assert sys.modules["colorsys"] is colorsys


def test_a_file_is_loaded_once_and_again_when_it_changed(tmp_path: Path) -> None:
    """Two references to one file share its objects; an edit within the same second is seen."""
    file = write(tmp_path, "net.py", "VALUE = [1]\n")
    first = user_code.attribute(file, "VALUE", error=DataError)
    assert user_code.attribute(file, "VALUE", error=DataError) is first
    file.write_text("VALUE = [2]\n", encoding="utf-8")
    assert user_code.attribute(file, "VALUE", error=DataError) == [2]
    assert not (tmp_path / "__pycache__").exists()


def test_a_module_is_found_in_sys_modules_by_its_objects(tmp_path: Path) -> None:
    """Classes of the file name a module that exists, which inspect, pickle and torch rely on."""
    file = write(tmp_path, "net.py", "class Net: ...\n")
    net = user_code.attribute(file, "Net", error=DataError)
    assert sys.modules[net.__module__].Net is net


def test_local_sources_follow_imports_through_the_folder_without_running_it(tmp_path: Path) -> None:
    """Packages, relative imports and imports inside functions count; installed packages and others do not."""
    file = write(tmp_path, "net.py", "import numpy\nfrom parts import block\ndef f():\n    import late\n")
    write(tmp_path, "parts/__init__.py", "")
    write(tmp_path, "parts/block.py", "from .deep import x\nraise RuntimeError('was run')\n")
    write(tmp_path, "parts/deep.py", "x = 1\n")
    write(tmp_path, "late.py", "")
    write(tmp_path, "unrelated.py", "")
    sources = [source.relative_to(tmp_path).as_posix() for source in user_code.local_sources(file)]
    assert sources == ["late.py", "net.py", "parts/__init__.py", "parts/block.py", "parts/deep.py"]


def test_local_sources_know_what_was_imported_by_a_computed_name(tmp_path: Path) -> None:
    """A module that only running the file shows is a dependency once the file was loaded."""
    file = write(tmp_path, "net.py", "import importlib\nmod = importlib.import_module('by' + '_name')\n")
    write(tmp_path, "by_name.py", "")
    user_code.attribute(file, "mod", error=DataError)
    assert tmp_path / "by_name.py" in user_code.local_sources(file)


def test_sources_are_native_code_and_bytecode_too(tmp_path: Path) -> None:
    """Python takes what lies beside the file, whatever its ending, and native code first; ``..`` may lead out."""
    net = write(tmp_path, "nets/net.py", "import fast\nfrom pack import deep\nfrom .. import above\n")
    names = ["nets/fast.abi3.so", "nets/fast.py", "nets/pack/__init__.pyc", "nets/pack/deep.so", "above.py"]
    files = [write(tmp_path, name, "") for name in names]
    assert user_code.read_sources(net) == tuple(sorted([net, *files]))
    before = user_code.digest(net)
    files[0].write_text("other")
    assert user_code.digest(net) != before


def test_sources_that_are_read_do_not_depend_on_the_process(tmp_path: Path) -> None:
    """What happens to be loaded is no part of them."""
    name = f"loaded_{tmp_path.name}"
    write(tmp_path, f"{name}.py", "")
    net = write(tmp_path, "net.py", f"import importlib\nimportlib.import_module({name!r})\ndef build(): ...\n")
    user_code.attribute(net, "build", error=ModelError)
    assert user_code.read_sources(net) == (net,)
    assert user_code.local_sources(net) == tuple(sorted([net, tmp_path / f"{name}.py"]))


@pytest.mark.parametrize("name", ["helper", "pack", "pack.deep"])
def test_bytecode_beside_the_text_is_not_used(name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """It may be anybody's: Python believes it where it names size and second of the text. None is left behind."""
    place = name.replace(".", "/") if name != "pack" else "pack/__init__"
    write(tmp_path, "pack/__init__.py", "")
    source = write(tmp_path, f"{place}.py", "value = 'text'\n")
    forged = write(tmp_path, "forged.py", "value = 'evil'\n")
    os.utime(forged, ns=(source.stat().st_atime_ns, source.stat().st_mtime_ns))
    planted = py_compile.compile(str(forged), cfile=importlib.util.cache_from_source(str(source)))
    assert py_compile.compile(str(forged)) is not None
    net = write(tmp_path, "net.py", f"from {name} import value\nfrom forged import value as other\n")
    files = {file for file in tmp_path.rglob("*") if file.is_file()}
    monkeypatch.setattr(sys, "dont_write_bytecode", False)
    assert user_code.attribute(net, "value", error=ModelError) == "text"
    assert user_code.attribute(net, "other", error=ModelError) == "evil"  # its own text says so
    assert {file for file in tmp_path.rglob("*") if file.is_file()} == files
    assert Path(str(planted)) in files


def test_a_library_inside_the_folder_keeps_its_bytecode(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """An environment often lies in a project: compiling torch again would take half a minute."""
    library = tmp_path / ".venv" / "lib" / "site-packages"
    write(library, f"in_{tmp_path.name}.py", "")
    net = write(tmp_path, "net.py", f"import sys\nsys.path.append({str(library)!r})\nimport in_{tmp_path.name}\n")
    monkeypatch.setattr(sys, "dont_write_bytecode", False)
    with pytest.raises(ModelError, match="no 'build'"):
        user_code.attribute(net, "build", error=ModelError)
    assert [file.name.partition(".")[0] for file in library.glob("__pycache__/*")] == [f"in_{tmp_path.name}"]


@pytest.mark.parametrize(
    ("file", "is_own"),
    [
        ("a/net.py", True),
        ("a/net.so", False),
        ("b/net.py", False),
        ("a/lib/site-packages/x.py", False),
        ("a/dist-packages/x.py", False),
        ("a/env/x.py", False),
        ("a/environment/x.py", True),
        ("a/python/x.py", False),
        ("a/qbench/x.py", False),
    ],
)
def test_what_is_a_users_own(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, file: str, is_own: bool) -> None:
    """Python below the folder, but for an environment, a Python and a qbench in it; one around the folder matters
    not."""
    monkeypatch.setattr(sys, "prefix", str(tmp_path / "a/env"))
    monkeypatch.setattr(sys, "base_prefix", str(tmp_path / "a/python"))
    monkeypatch.setattr(user_code, "__file__", str(tmp_path / "a/qbench/user_code.py"))
    assert user_code._is_own(tmp_path / file, tmp_path / "a") == is_own
    monkeypatch.setattr(sys, "prefix", str(tmp_path))
    assert user_code._is_own(tmp_path / "a/net.py", tmp_path / "a")


def test_digest_changes_with_a_dependency_and_not_with_the_place(tmp_path: Path) -> None:
    """The same files elsewhere have the same digest; an edited sibling has another."""
    digests = []
    for name, body in [("a", "x = 1\n"), ("b", "x = 1\n"), ("c", "x = 2\n")]:
        write(tmp_path, f"{name}/sib.py", body)
        digests.append(user_code.digest(write(tmp_path, f"{name}/net.py", "import sib\n")))
    assert digests[0] == digests[1] != digests[2]


def test_a_file_is_compiled_as_it_says_itself(tmp_path: Path) -> None:
    """Without the future features of who loads it: annotations are what they stand for."""
    file = write(tmp_path, "net.py", "def build(width: int = 1): ...\n")
    assert user_code.attribute(file, "build", error=ModelError).__annotations__ == {"width": int}


def test_the_folder_of_the_file_comes_first(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Before whatever else is on the import path, while it loads and while it is called."""
    write(tmp_path, "elsewhere/beside.py", "NAME = 'elsewhere'\n")
    monkeypatch.syspath_prepend(str(tmp_path / "elsewhere"))
    write(tmp_path, "own/beside.py", "NAME = 'own'\n")
    file = write(tmp_path, "own/net.py", "import beside\ndef name():\n    import beside\n    return beside.NAME\n")
    name = user_code.attribute(file, "name", error=ModelError)
    del sys.modules["beside"]
    assert user_code.call(name, path=file, error=ModelError) == "own"


def test_a_file_beside_that_does_not_parse_depends_on_nothing_more(tmp_path: Path) -> None:
    """Nor one that cannot be read; both are sources themselves."""
    write(tmp_path, "deep.py", "")
    broken, unread = write(tmp_path, "broken.py", "import deep\ndef f(:\n"), tmp_path / "unread.py"
    unread.symlink_to("unread.py")
    file = write(tmp_path, "net.py", "import broken, unread\n")
    assert user_code.read_sources(file) == (broken, file)
    write(tmp_path, "broken.py", "import deep\n")
    assert tmp_path / "deep.py" in user_code.read_sources(file)


def test_a_digest_is_that_of_the_sources_that_are_given(tmp_path: Path) -> None:
    """Where there are any; else of the file and what it imports."""
    file, other = write(tmp_path, "net.py", "import sib\n"), write(tmp_path, "sib.py", "x = 1\n")
    both = user_code.digest(file)
    assert user_code.digest(file, (file, other)) == both != user_code.digest(file, (file,))
    assert len(both) == 64
