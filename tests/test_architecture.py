"""The house: imports go towards the ground, only the command line speaks, and starting up stays light.

``ROWS`` is the order. A module may import what stands on a lower line, and its own room (a package); two rooms on
one line do not import each other. A module that stands nowhere fails the first test: place it.
"""

from __future__ import annotations

import ast
import functools
import graphlib
import json
import re
import subprocess
import sys
from collections.abc import Iterable, Iterator
from pathlib import Path

import pytest

from qbench.registry import BUILT_IN

ROOT = Path(__file__).parent.parent
PACKAGE = ROOT / "qbench"

ROWS: tuple[tuple[str, ...], ...] = (
    ("foreign_text",),
    ("errors", "installation", "modes", "stats", "torch_private"),
    ("files", "progress"),
    ("process", "registry", "user_code", "formatting"),
    ("cache",),
    ("environments", "machine", "metrics", "datasets"),
    ("record", "doctor"),
    ("quant", "hosts"),
    ("models", "onnx"),
    ("backends", "suite"),
    ("plan", "compare", "consent"),
    ("data",),
    ("data_preparation",),
    ("train",),
    ("network",),
    ("build",),
    ("evaluate", "measure"),
    ("fleet", "decide"),
    ("portability",),
    ("first_suite",),
    ("explain",),
    ("check",),
    ("running", "gating", "report"),
    ("ship", "replay", "upgrade", "bisect"),
    ("api", "cli", "pytest_plugin"),
    ("__main__",),
)
HEAVY = (
    "torch",
    "torchao",
    "onnx",
    "onnxruntime",
    "onnxscript",
    "pandas",
    "matplotlib",
    "sklearn",
    "scipy",
)
VAGUE = ("utils", "util", "common", "helpers", "helper", "manager", "core", "misc", "base_utils")


def modules() -> dict[str, Path]:
    """Every module of qbench by its dotted name below it; a package is its ``__init__``, qbench itself is empty."""
    by_name = {}
    for path in sorted(PACKAGE.rglob("*.py")):
        parts = path.relative_to(PACKAGE).with_suffix("").parts
        by_name[".".join(parts[:-1] if parts[-1] == "__init__" else parts)] = path
    return by_name


MODULES = modules()
# What is registered, as opposed to what the plug-ins of a kind share.
IMPLEMENTATIONS = {
    target.partition(":")[0].removeprefix("qbench.") for kind in BUILT_IN.values() for target in kind.values()
}


@functools.cache
def tree(module: str) -> ast.Module:
    """A module's syntax."""
    return ast.parse(MODULES[module].read_text(encoding="utf-8"))


@functools.cache
def nodes(module: str) -> tuple[ast.AST, ...]:
    """Every node of a module's syntax, which many rules go through."""
    return tuple(ast.walk(tree(module)))


@functools.cache
def functions_of_tests() -> dict[str, ast.FunctionDef]:
    """Every test function by its file and its name."""
    return {
        f"{file.relative_to(ROOT)}:{node.lineno} {node.name}": node
        for file in sorted((ROOT / "tests").rglob("test_*.py"))
        for node in ast.walk(ast.parse(file.read_text(encoding="utf-8")))
        if isinstance(node, ast.FunctionDef) and node.name.startswith("test_")
    }


def is_type_checking(node: ast.AST) -> bool:
    """Is this ``if TYPE_CHECKING:``, whose body never runs?"""
    return isinstance(node, ast.If) and isinstance(node.test, ast.Name) and node.test.id == "TYPE_CHECKING"


@functools.cache
def imported(module: str) -> frozenset[str]:
    """The full names that a module imports, wherever in it; of qbench the modules, not the things in them."""
    return imported_by(module, nodes(module))


@functools.cache
def imported_at_once(module: str) -> frozenset[str]:
    """Those that it imports as soon as it is imported itself."""
    return imported_by(module, running(module))


def imported_by(module: str, statements: Iterable[ast.AST]) -> frozenset[str]:
    """The full names that these statements of a module import."""
    names_of_imports: set[str] = set()
    for node in statements:
        if isinstance(node, ast.Import):
            names_of_imports |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom):
            assert node.level == 0, f"{module} imports relatively"
            within = [f"{node.module}.{alias.name}" for alias in node.names]
            names_of_imports |= {
                name if name.removeprefix("qbench.") in MODULES else str(node.module) for name in within
            }
    return frozenset(names_of_imports)


def qbench_imports(module: str) -> set[str]:
    """What a module imports of qbench, as names below it; qbench itself (its version) is left out."""
    names = {name.removeprefix("qbench.") for name in imported(module) if name.startswith("qbench.")}
    return names - {module}


def running(module: str) -> Iterator[ast.AST]:
    """The nodes of a module that run when it is imported: not function bodies, not ``if TYPE_CHECKING``."""
    pending: list[ast.AST] = [tree(module)]
    while pending:
        node = pending.pop()
        yield node
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.Lambda) or is_type_checking(node):
            continue
        pending += ast.iter_child_nodes(node)


@functools.cache
def room(module: str) -> str:
    """The longest placed name that a module is or lies in; the empty name where it is not placed."""
    rooms = [name for level in ROWS for name in level if module == name or module.startswith(f"{name}.")]
    return max(rooms, key=len, default="")


HEIGHT = {name: height for height, level in enumerate(ROWS) for name in level}


def test_every_module_is_placed() -> None:
    """A new module must be given its place in ROWS, or nobody knows what it may import."""
    assert [module for module in MODULES if module and not room(module)] == []


def test_every_place_is_taken() -> None:
    """ROWS holds no name that is no module."""
    assert [name for name in HEIGHT if name not in MODULES] == []


@pytest.mark.parametrize("module", [module for module in MODULES if module])
def test_imports_go_towards_the_ground(module: str) -> None:
    """A module imports only rooms on lower levels, and its own, also inside functions and for types."""
    own = room(module)
    wrong = [name for name in qbench_imports(module) if room(name) != own and HEIGHT[room(name)] >= HEIGHT[own]]
    assert wrong == []


def test_no_import_goes_round_in_a_circle() -> None:
    """Inside a room, too, imports have an order."""
    order = graphlib.TopologicalSorter({module: qbench_imports(module) for module in MODULES if module})
    order.prepare()  # raises CycleError, which names the circle


@pytest.mark.parametrize("module", [name for name in MODULES if name])
def test_only_the_registry_reaches_a_plug_in(module: str) -> None:
    """A stage knows a kind's contract and what its plug-ins share, never one of them; nor does another plug-in,
    which would not work with the user's own."""
    assert qbench_imports(module) & IMPLEMENTATIONS == set()


def test_only_the_command_line_prints_and_exits() -> None:
    """Text and exit codes are values until ``cli`` shows them; the commands below ``qbench onnx`` are a part of it that
    has its own file, since they are five of their own."""
    wrong = []
    for module in MODULES:
        for node in nodes(module):
            called = node.func if isinstance(node, ast.Call) else None
            raised = node.exc if isinstance(node, ast.Raise) else None
            named = raised.func if isinstance(raised, ast.Call) else raised
            if (isinstance(called, ast.Name) and called.id in ("print", "exit", "quit")) or (
                isinstance(called, ast.Attribute) and ast.unparse(called) == "sys.exit"
            ):
                wrong.append(f"{module}: {ast.unparse(called)}")
            elif isinstance(named, ast.Name) and named.id == "SystemExit":
                wrong.append(f"{module}: SystemExit")
    assert [line for line in wrong if not line.startswith("cli.")] == []


def list_users(package: str) -> set[str]:
    """The modules that import a package of others, at their top or later."""
    return {module for module in MODULES if any(name.split(".")[0] == package for name in imported(module))}


def test_torchao_is_known_to_the_modules_of_its_flow() -> None:
    """Its PT2E interface moves between versions: these files are the ones to change."""
    flow = {"pt2e", "pt2e_inductor", "pt2e_observers", "pt2e_xnnpack"}
    assert list_users("torchao") == {f"quant.pytorch.{module}" for module in flow}


def test_executorch_is_known_to_two_modules() -> None:
    """Its quantizer to one, its programs and their runtime to the other."""
    assert list_users("executorch") == {"quant.pytorch.pt2e_xnnpack", "quant.artifacts.executorch_program"}


def test_torch_ao_is_known_to_one_module() -> None:
    """torch.ao.quantization is announced for removal: one file is the one to change."""
    users = set()
    for module in MODULES:
        if any(name == "torch.ao" or name.startswith("torch.ao.") for name in imported(module)):
            users.add(module)
        for node in nodes(module):
            if isinstance(node, ast.ImportFrom) and node.module == "torch" and "ao" in {a.name for a in node.names}:
                users.add(module)
            if isinstance(node, ast.Attribute) and ast.unparse(node) == "torch.ao":
                users.add(module)
    assert users == {"quant.pytorch.torch_ao"}


def test_no_array_and_no_network_is_unpickled() -> None:
    """An object in a file would be code of whoever wrote it: numpy and torch are told so wherever they read one. What
    else knows pickles reads those of this qbench's own processes, or names the error."""
    safe = {"np.load": "allow_pickle=False", "np.lib.format.read_array": "allow_pickle=False"}
    safe |= {"torch.load": "weights_only=True"}
    wrong = [
        f"{module}:{node.lineno}"
        for module in MODULES
        for node in nodes(module)
        if isinstance(node, ast.Call)
        and safe.get(ast.unparse(node.func), "") not in [*map(ast.unparse, node.keywords), ""]
    ]
    assert wrong == []
    own = {"process.pipe", "fleet.transfer", "quant.onnx.calibration.batches", "quant.random_draws"}
    assert list_users("pickle") == {*own, "models.weights"}


def test_no_link_to_itself_is_a_traceback() -> None:
    """pathlib's ``resolve`` raises RuntimeError of one, which nobody expects: ``regular_file.real_path`` raises
    nothing, and who opens the file is told."""
    resolved = [
        f"{module}:{node.lineno}"
        for module in MODULES
        for node in nodes(module)
        if isinstance(node, ast.Call) and ast.unparse(node).endswith(".resolve()")
    ]
    assert resolved == []


def test_no_command_waits_for_scipy_stats() -> None:
    """Importing it took 0.7 of the 4.1 s of `python -c 'import qbench.process.preload'`, by which children start;
    scipy.special has what it computes limits from."""
    named = re.compile(r"\bscipy\.stats\b|\bfrom scipy import .*\bstats\b")
    assert [module for module, path in MODULES.items() if named.search(path.read_text(encoding="utf-8"))] == []


def test_every_test_states_its_rule() -> None:
    """A test's docstring says what it proves."""
    assert [name for name, node in functions_of_tests().items() if not ast.get_docstring(node)] == []


def test_no_module_has_a_name_that_says_nothing() -> None:
    """utils, common, helpers, manager and core invite everything."""
    assert [module for module in MODULES if set(module.split(".")) & set(VAGUE)] == []


def test_a_room_names_modules_that_lie_in_it() -> None:
    """The map in a package's docstring (lines of four spaces, a name, two spaces) is true."""
    wrong = []
    for module, path in MODULES.items():
        if path.name != "__init__.py" or module == "onnx":  # its lines are the steps of the workflow
            continue
        names = re.findall(r"^    ([a-z_0-9]+)  ", ast.get_docstring(tree(module), clean=False) or "", re.MULTILINE)
        wrong += [f"{module}: {name}" for name in names if f"{module}.{name}".lstrip(".") not in MODULES]
    assert wrong == []


def test_no_exception_is_swallowed() -> None:
    """``except:`` and ``except Exception: pass`` hide bugs."""
    wrong = []
    for module in MODULES:
        for node in nodes(module):
            if isinstance(node, ast.ExceptHandler):
                broad = node.type is None or ast.unparse(node.type) in ("Exception", "BaseException")
                empty = all(isinstance(line, ast.Pass) for line in node.body)
                if node.type is None or (broad and empty):
                    wrong.append(f"{module}:{node.lineno}")
    assert wrong == []


@functools.cache
def imported_by_the_parent() -> set[str]:
    """The modules of quant that are imported with modules outside it, at once or one through another.

    The rest of quant runs in child processes only, and imports torch as it likes.
    """
    reached: set[str] = set()
    pending = [module for module in MODULES if room(module) != "quant"]
    while pending:
        module = pending.pop()
        names = {name.removeprefix("qbench.") for name in imported_at_once(module)}
        more = {name for name in names if name in MODULES and room(name) == "quant"} - reached
        reached |= more
        pending += more
    return reached


@pytest.mark.parametrize(
    "module",
    [
        name
        for name in MODULES
        if name
        and room(name) not in ("report", "torch_private")
        and (room(name) != "quant" or name in imported_by_the_parent())
    ],
)
def test_no_heavy_import_at_the_top_of_a_module(module: str) -> None:
    """Whoever needs a heavy library imports it inside the function that does; only child processes and reports do."""
    top = {name.partition(".")[0] for name in imported_at_once(module)}
    assert top & set(HEAVY) == set()


LOADED = """
import json, os, sys
os.environ.pop("COLUMNS", None)
sys.argv = ["qbench", *json.loads(sys.argv[1])]
code = None
try:
    if sys.argv[1:] == ["import every plug-in"]:
        from qbench import registry
        for kind in registry.KINDS:
            for name in registry.names(kind):
                registry.load(kind, name)
    elif sys.argv[1:] == ["import only"]:
        import qbench.cli.main
    else:
        from qbench.cli.main import main
        main()
except SystemExit as error:
    code = error.code
print(json.dumps({"code": code, "modules": sorted(sys.modules)}), file=sys.stderr)
"""


def loaded(arguments: list[str]) -> set[str]:
    """The top-level modules that a fresh process has after a command that ended well."""
    command = [sys.executable, "-c", LOADED, json.dumps(arguments)]
    done = subprocess.run(command, capture_output=True, text=True, cwd=ROOT, check=False)
    assert done.returncode == 0, done.stderr
    told = json.loads(done.stderr.splitlines()[-1])
    assert told["code"] in (None, 0), done.stderr
    return {name.partition(".")[0] for name in told["modules"]}


@pytest.mark.parametrize(
    "arguments",
    [
        ["import only"],
        ["import every plug-in"],
        ["--help"],
        ["run", "--help"],
        ["onnx", "all", "--help"],
        ["list"],
        ["schema"],
        ["plan", "suites/quickstart.yaml"],
    ],
    ids=" ".join,
)
def test_starting_up_loads_no_heavy_library(arguments: list[str]) -> None:
    """What answers at once stays light: no torch, onnxruntime, pandas, matplotlib, sklearn or scipy is loaded."""
    assert loaded(arguments) & set(HEAVY) == set()


@pytest.mark.parametrize(
    "arguments", [["import only"], ["--help"], ["list"], ["schema"], ["plan", "suites/quickstart.yaml"]], ids=" ".join
)
def test_what_answers_at_once_needs_no_numpy(arguments: list[str]) -> None:
    """Importing numpy costs 0.1 s, a third of what `qbench list` may take."""
    assert "numpy" not in loaded(arguments)


SIGNALLING = {"raise_signal", "pthread_kill", "alarm", "setitimer"}


def signals_itself(test: ast.FunctionDef) -> bool:
    """Whether a test has this process sent a signal."""
    calls = [node for node in ast.walk(test) if isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute)]
    names = {call.func.attr for call in calls if isinstance(call.func, ast.Attribute)}
    kills = [call for call in calls if isinstance(call.func, ast.Attribute) and call.func.attr in ("kill", "killpg")]
    return bool(names & SIGNALLING) or any("getpid()" in ast.unparse(call) for call in kills)


def test_no_test_raises_a_signal_in_the_process_of_the_tests() -> None:
    """A worker of pytest has threads and handlers of other libraries, and has died of it: what is sent a signal is a
    process of its own."""
    assert [name for name, node in functions_of_tests().items() if signals_itself(node)] == []
    (raising,) = ast.parse("def test_x():\n    os.kill(os.getpid(), signal.SIGTERM)").body
    assert isinstance(raising, ast.FunctionDef)
    assert signals_itself(raising)
