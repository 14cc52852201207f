"""Command lines that nobody should write: each ends in time, with a documented exit code and one message.

    python tests/fuzz/command_lines.py --count 7000 --seed 0
    python tests/fuzz/command_lines.py --seed 0 --only 17        # one of them again, with all that it said

A command line is a command of `qbench` with each of its arguments and some of its options. Most values fit; one or two
are odd: a named pipe, an endless or a full device, a folder, nothing, a file that may not be read, a link to itself, a
name of 300 letters, of two lines or of bytes that are no UTF-8, an empty one, a NUL byte, deep nesting, a number beyond
every limit. Some run with standard output closed, full or unread, in a folder that was removed or whose name is no
UTF-8, or with such a folder for the cache. Each runs in a folder of its own, in a child that is forked from a process
which has imported qbench.

A find is: a traceback, an exception that Python ignored, an exit code that is not the command's, an end by a signal,
no message beside an exit code of 2, a message of more than ``MOST_LETTERS``, or no end within ``--deadline`` seconds.
"""

from __future__ import annotations

import argparse
import contextlib
import ctypes
import enum
import gc
import importlib
import os
import random
import shlex
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

ROOT = Path(__file__).parents[2]
SUITE = """
suite: mine
models: [{name: net, source: {onnx: model.onnx}}]
data: {dataset: {npz: data.npz}}
matrix: {modes: [fp32], backends: [fake], threads: [1], batch_sizes: [1]}
"""
LONG, BYTES = "n" * 300, os.fsdecode(b"\xff\xfe\xe9")
MOST_LETTERS = 20_000
SHARED = 10  # command lines that run in one folder, one after the other
# What each command documents; of the rest 0, 1 and 2. 128 + 13: a pipe that nobody reads any more, as a shell says it.
CODES = {"gate": (0, 1, 2, 3, 4), "compare": (0, 1, 2, 3)}
ODD_FILES = (
    *("pipe", "zero", "full", "folder", "missing", "no/such/folder/x", "unreadable", "closed/x", "loop", LONG, BYTES),
    *(f"{BYTES}.yaml", "empty", "binary", "", "/", ".", "..", "~nobody-of-that-name/x", "-", "--", "deep.json"),
    *(
        "deep.yaml",
        "huge",
        "x/" * 3000,
        "/dev/stdin",
        "/dev/fd/99",
        "/proc/self/mem",
        "/proc/self/environ",
        "suite.yaml",
    ),
    *("socket", "link-to-folder", "model.onnx/x", "*", "[", "\x1b[31m", "\u202eabc", "ü.yaml", "unlinked"),
    "x\nerror: forged",
)
ENDINGS = ("", "", "", ".yaml", ".jsonl", ".npz", ".onnx", ".json", ".safetensors", ".py:f", "/run.json")
ODD_NUMBERS = (
    *(
        "0",
        "-1",
        "1",
        "3",
        str(2**31),
        str(2**63),
        "9" * 400,
        "9" * 5000,
        "1e999",
        "nan",
        "inf",
        "-inf",
        "-0.0",
        "1e-320",
    ),
    *("", " ", "x", "0x10", "1_0", "\u0661", "1.5", "2%"),
)
ODD_TEXTS = (
    *(
        "",
        " ",
        "x",
        LONG,
        "y" * 100_000,
        BYTES,
        "\x1b[2J",
        "[" * 3000,
        "{" * 3000,
        "a=" + "[" * 3000,
        "*",
        "[",
        "**/[",
    ),
    *(
        "x\nerror: forged",
        "a=x\nerror: forged",
        "=",
        "==",
        "a=",
        "=a",
        "a.b.c=1",
        "models=[]",
        "matrix.threads=[0]",
        "matrix.threads=[" + "1," * 5000 + "1]",
    ),
    *(
        "measure.precision=nan",
        f"measure.max_seconds={'9' * 400}",
        "a=!!python/object:os.system",
        "a=&x [*x]",
        "mean=1",
    ),
    *("suite=../..", "models[0].weights=pipe", "models[0].source.onnx=zero", "data.dataset.npz=pipe", f"suite={LONG}"),
    *(
        f"models[0].source.onnx={LONG}",
        "models[0].source.onnx=loop",
        f"data.dataset.npz={LONG}",
        "data.dataset.npz=loop",
    ),
    *(f"models[0].source.onnx={BYTES}", "models[0].weights=~nobody-of-that-name/x", "data={dataset: {python: pipe:f}}"),
    *("models=[{name: m, source: {python: 'zero:f'}}]", "models=[{name: m, source: {torchscript: pipe}}]"),
    *(f"models=[{{name: digits-cnn, weights: {LONG}}}]", "models=[{name: digits-cnn, weights: loop}]"),
    *("gate.accuracy.metric={python: 'pipe:f'}", "quantize.static.calibrator=x", "hosts=['qemu:x']", "hosts=[]"),
    *(
        "ray://127.0.0.1:1",
        "ray://" + "h" * 300 + ":1",
        "ray://[::",
        "local",
        "native,native",
        "HEAD",
        "-x",
        "--output=x",
    ),
)
FITTING: dict[str, tuple[str, ...]] = {
    "suite": ("suite.yaml", "quick.yaml"),
    "run": ("mine", "v1", "reports/v1/20260101T000000Z-aaaa", "reports/v1/latest"),
    "base": ("base.jsonl", "v1"),
    "contender": ("v1", "reports/v1/latest"),
    "compare": ("v1",),
    "history": ("reports/v1",),
    "baseline": ("base.jsonl",),
    "artifacts": ("base.jsonl",),
    "model": ("model.onnx",),
    "calibration": ("calibration.onnx",),
    "settings": ("config.json",),
    "record": ("record.txt",),
    "data": ("data.npz", "images", "code.py:batches", "digits"),
    "evaluate": ("code.py:score",),
    "preset": ("amct", "fast", "config.json"),
    "calibrator": ("minmax", "ifmr"),
    "weights": ("arq_quantize",),
    "target": ("onnxruntime", "ascend"),
    "form": ("U8S8", "S8S8"),
    "overrides": ("measure.precision=2%", "matrix.threads=[1]"),
    "options": ("size=8", "mean=[0.5]", "scale=1"),
    "only": ("*", "*/fp32/*"),
    "hosts": ("native", "native,avx2"),
    "split": ("train", "test"),
    "case": ("digits-cnn/static/onednn/t1/b1",),
    "against": ("HEAD",),
    "skip_layers": ("fc", "conv*"),
    "skip_types": ("Gemm",),
    "prepare": ("native",),
    "resume": ("v1", "mine"),
    "on": ("ray://127.0.0.1:1",),
    "out": ("out", "out.safetensors", "out/x.jsonl"),
    "output": ("out.csv",),
    "prefix": ("out/int8",),
    "folder": ("out",),
    "junit": ("out.xml",),
    "markdown": ("out.md",),
}
# What takes minutes where everything fits is left out of most command lines, and kept small in the rest.
SMALL = {"doctor": ("--seconds", "0"), "explain": ("--max-seconds", "0.1"), "run": ("--filter", "no-such-case")}
# Left out: Ray takes half a minute to start, a download has no end here, and the simulations of a control take an hour.
NEVER = ("control", "every")


@dataclass(frozen=True, kw_only=True)
class Example:
    """What is run: words after ``qbench``, where its output goes, where it stands, and a variable that is set."""

    words: tuple[str, ...]
    output: str = "file"
    place: str = "world"
    variable: tuple[str, str] | None = None

    @property
    def text(self) -> str:
        """As one would type it, cut where it is long."""
        words = [word if len(word) < 60 else f"{word[:40]}…({len(word)})" for word in self.words]
        return f"qbench {shlex.join(words)}  [{self.output}, {self.place}, {self.variable}]"


@dataclass(frozen=True, kw_only=True)
class Ended:
    """How it ended: the exit code (negative: the signal; None: not at all), and what it said."""

    code: int | None
    out: str
    err: str
    seconds: float


# --- examples ----------------------------------------------------------------------------------------------------


def commands() -> dict[tuple[str, ...], Any]:
    """Every command by its words, with the parameters that it declares."""
    import typer

    from qbench.cli.main import app

    group: Any = typer.main.get_command(app)
    by_words: dict[tuple[str, ...], Any] = {}
    for name, command in group.commands.items():
        below = getattr(command, "commands", None)
        by_words |= {(name, part): inner for part, inner in below.items()} if below else {(name,): command}
    return by_words


def make(random: random.Random, every: dict[tuple[str, ...], Any]) -> Example:
    """One command line, of which one to three values are odd, or what it stands in."""
    name = random.choice(sorted(every))
    chosen: list[tuple[Any, str | None]] = []
    for parameter in every[name].params:
        if parameter.name == "help" or parameter.name in NEVER:
            continue
        if _is_argument(parameter) or parameter.required or random.random() < 0.25:
            flag = bool(getattr(parameter, "is_flag", False))
            chosen.append((parameter, None if flag else _fitting(random, parameter)))
    odd = [place for place, (_, value) in enumerate(chosen) if value is not None]
    surroundings = _surroundings(random) if not odd or random.random() < 0.25 else {}
    if not surroundings or random.random() < 0.3:
        for place in random.sample(odd, min(len(odd), random.choice((1, 1, 1, 2, 3)))):
            chosen[place] = chosen[place][0], _odd(random, chosen[place][0])
    words = [*name, *SMALL.get(name[0], ()), *_written(random, chosen)]
    if random.random() < 0.03:
        words.insert(random.randrange(len(words) + 1), random.choice((*ODD_TEXTS, "--version", "--help", "--no-such")))
    return Example(words=tuple(words), **surroundings)


def _surroundings(random: random.Random) -> dict[str, Any]:
    kind = random.randrange(3)
    if kind == 0:
        return {"output": random.choice(("closed", "full", "unread", "all closed"))}
    if kind == 1:
        return {"place": random.choice(("removed", "bytes", "closed", "long"))}
    name = random.choice(
        ("QBENCH_CACHE", "HOME", "TMPDIR", "QBENCH_DATA", "COLUMNS", "GITHUB_STEP_SUMMARY", "GITHUB_WORKSPACE")
    )
    return {"variable": (name, random.choice(ODD_FILES))}


def _fitting(random: random.Random, parameter: Any) -> str:
    if parameter.name in FITTING:
        return random.choice(FITTING[parameter.name])
    if issubclass(kind := _kind_of(parameter), enum.Enum):
        return str(random.choice(list(kind)).value)
    return random.choice(("1", "2")) if _is_number(parameter) else "x"


def _is_argument(parameter: Any) -> bool:
    return not parameter.opts[0].startswith("-")


def _kind_of(parameter: Any) -> type:
    """What typer makes of its text."""
    kind = parameter.type_descriptor.annotation
    return kind if isinstance(kind, type) else str


def _is_number(parameter: Any) -> bool:
    return issubclass(_kind_of(parameter), int | float)


def _odd(random: random.Random, parameter: Any) -> str:
    if _is_number(parameter) and random.random() < 0.9:
        return random.choice(ODD_NUMBERS)
    named = parameter.name in ("overrides", "options", "only", "hosts", "case", "against", "on", "split")
    if random.random() < (0.8 if named else 0.1):
        return random.choice(ODD_TEXTS)
    return random.choice(ODD_FILES) + random.choice(ENDINGS)


def _written(random: random.Random, chosen: Sequence[tuple[Any, str | None]]) -> list[str]:
    words = []
    for parameter, value in chosen:
        if _is_argument(parameter):
            words.append(str(value))
        elif value is None:
            words.append(parameter.opts[-1])
        elif random.random() < 0.5 and parameter.opts[0].startswith("--"):
            words.append(f"{parameter.opts[0]}={value}")
        else:
            words += [parameter.opts[0], value]
    return words


# --- the folder in which it runs -----------------------------------------------------------------------------------


def build_world(folder: Path) -> None:
    """What fits, and what is odd, under names that ``FITTING`` and ``ODD_FILES`` use."""
    import numpy as np

    for name in ("folder", "closed", "images", "reports/v1", "reports/mine"):
        (folder / name).mkdir(parents=True)
    (folder / "suite.yaml").write_text(SUITE)
    (folder / "quick.yaml").write_text(
        "models: [digits-cnn]\nsuite: quick\ndata: {dataset: digits}\nmatrix: {backends: [fake]}\n"
    )
    (folder / "code.py").write_text(
        "def batches():\n    return []\ndef score(path):\n    return 1.0\ndef f():\n    return 1/0\n"
    )
    inputs, labels = np.zeros((8, 3, 8, 8), np.float32), np.zeros(8, np.int64)
    np.savez(folder / "data.npz", x=inputs, y=labels, train_inputs=inputs, train_labels=labels, input=inputs)
    _save_models(folder)
    runs = sorted((ROOT / "tests/data/records").glob("*/run.json"))
    shutil.copytree(runs[0].parent, folder / "reports/v1/20260101T000000Z-aaaa")
    shutil.copytree(runs[-1].parent, folder / "reports/mine/20260101T000000Z-bbbb")
    (folder / "reports/v1/latest").symlink_to("20260101T000000Z-aaaa")
    shutil.copy(runs[0], folder / "base.run.json")
    shutil.copy(runs[0].parent / "records.jsonl", folder / "base.jsonl")
    _build_odd_files(folder)


def _save_models(folder: Path) -> None:
    import numpy as np
    import onnx
    from PIL import Image

    draw = np.random.RandomState(0)
    weight = onnx.numpy_helper.from_array(draw.standard_normal((3, 3 * 8 * 8)).astype(np.float32), "w")
    value = onnx.helper.make_tensor_value_info
    nodes = [
        onnx.helper.make_node("Flatten", ["input"], ["flat"], "flatten"),
        onnx.helper.make_node("Gemm", ["flat", "w"], ["output"], "fc", transB=1),
    ]
    shapes = [value("input", 1, ["n", 3, 8, 8])], [value("output", 1, ["n", 3])]
    graph = onnx.helper.make_graph(nodes, "net", *shapes, [weight])
    model = onnx.helper.make_model(graph, opset_imports=[onnx.helper.make_opsetid("", 17)], ir_version=8)
    onnx.save(model, folder / "model.onnx")
    from qbench import onnx as steps

    steps.config(folder / "model.onnx", folder / "config.json")
    steps.quantize(folder / "model.onnx", folder / "config.json", folder / "calibration.onnx", folder / "record.txt")
    for number in range(2):
        Image.new("RGB", (8, 8)).save(folder / "images" / f"{number}.png")


def _build_odd_files(folder: Path) -> None:
    import socket

    for ending in dict.fromkeys(("", ".yaml", ".jsonl", ".npz", ".onnx", ".json", ".safetensors", ".py")):
        os.mkfifo(folder / f"pipe{ending}")
        (folder / f"zero{ending}").symlink_to("/dev/zero")
        (folder / f"full{ending}").symlink_to("/dev/full")
        (folder / f"loop{ending}").symlink_to(f"loop{ending}")
        (folder / f"empty{ending}").touch()
        (folder / f"binary{ending}").write_bytes(bytes(range(256)) * 40)
        (folder / f"unreadable{ending}").write_text("x")
        (folder / f"unreadable{ending}").chmod(0)
        (folder / f"unlinked{ending}").symlink_to("gone")
        with (folder / f"huge{ending}").open("wb") as file:
            file.truncate(1 << 42)
    (folder / "deep.json").write_text("[" * 100_000)
    (folder / "deep.yaml").write_text("a: " + "[" * 100_000)
    (folder / "link-to-folder").symlink_to("folder")
    os.mkfifo(folder / "folder/run.json")
    os.mkfifo(folder / "folder/records.jsonl")
    (folder / "ü.yaml").write_text(SUITE)
    (folder / os.fsencode(f"{BYTES}.yaml").decode("utf-8", "surrogateescape")).write_text(SUITE)
    (folder / "closed/x").touch()
    (folder / "closed").chmod(0)
    here = Path.cwd()
    os.chdir(folder)
    with socket.socket(socket.AF_UNIX) as opened:
        opened.bind("socket")
    os.chdir(here)


def copy_world(world: Path, folder: Path) -> None:
    """A copy for one command line: plain files are copied, what is odd is linked or made again."""
    os.system(f"cp -a --sparse=always {shlex.quote(str(world))} {shlex.quote(str(folder))}")


# --- running it ----------------------------------------------------------------------------------------------------


def become(example: Example, folder: Path, heard: tuple[Path, Path]) -> None:
    """In the child: the streams, the folder, the variables, and no right to read everything."""
    os.setsid()
    environment = {
        "HOME": str(folder),
        "QBENCH_CACHE": str(folder / "cache"),
        "NO_COLOR": "1",
        "XDG_STATE_HOME": str(folder),
    }
    os.environ.update(environment)
    for name in ("GITHUB_STEP_SUMMARY", "GITHUB_WORKSPACE", "RAY_ADDRESS"):
        os.environ.pop(name, None)
    if example.variable is not None:
        os.environ[example.variable[0]] = example.variable[1]
    _stand(example.place, folder)
    _connect(example.output, heard)
    _drop_rights()
    tempfile.tempdir = None
    sys.argv = ["qbench", *example.words]


def _stand(place: str, folder: Path) -> None:
    if place == "world":
        os.chdir(folder)
        return
    names = {"removed": "gone", "bytes": os.fsdecode(b"\xe9\xff"), "closed": "shut", "long": "/".join(["l" * 200] * 15)}
    there = folder / names[place]
    there.mkdir(parents=True, exist_ok=True)
    os.chdir(there)
    if place == "removed":
        there.rmdir()
    elif place == "closed":
        there.chmod(0)
    else:
        for name in (
            "suite.yaml",
            "model.onnx",
            "data.npz",
            "config.json",
            "record.txt",
            "calibration.onnx",
            "base.jsonl",
        ):
            shutil.copy(folder / name, name)
        shutil.copy(folder / "base.run.json", "base.run.json")
        with contextlib.suppress(FileExistsError):
            Path("reports").symlink_to(folder / "reports")


def _connect(output: str, heard: tuple[Path, Path]) -> None:
    """Descriptors 0 to 2 and Python's streams on them; a closed one is None, as after ``>&-``."""
    descriptors = [
        os.open(os.devnull, os.O_RDONLY),
        *(os.open(file, os.O_WRONLY | os.O_CREAT | os.O_APPEND) for file in heard),
    ]
    if output == "full":
        descriptors[1] = os.open("/dev/full", os.O_WRONLY)
    if output == "unread":
        reading, descriptors[1] = os.pipe()
        os.close(reading)
    for number, descriptor in enumerate(descriptors):
        os.dup2(descriptor, number)
        os.close(descriptor)
    sys.stdin, sys.stdout, sys.stderr = (
        os.fdopen(number, "r" if number == 0 else "w", errors="backslashreplace", closefd=False) for number in range(3)
    )
    closed = {"closed": (1,), "all closed": (0, 1, 2)}.get(output, ())
    for number in closed:
        os.close(number)
        setattr(sys, ("stdin", "stdout", "stderr")[number], None)
    for name in ("stdin", "stdout", "stderr"):
        setattr(sys, f"__{name}__", getattr(sys, name))


def _drop_rights() -> None:
    """For root: files that nobody may read may not be read (capabilities 1 and 2: DAC_OVERRIDE, DAC_READ_SEARCH)."""
    if os.geteuid() != 0 or sys.platform != "linux":
        return
    libc = ctypes.CDLL(None)
    header, data = (ctypes.c_uint32 * 2)(0x20080522, 0), (ctypes.c_uint32 * 6)()
    libc.capget(header, data)
    for place in (0, 1):  # effective, permitted
        data[place] &= ~0b110
    libc.capset(header, data)


def attend(child: int, deadline_seconds: float) -> int | None:
    """The exit code of a child; None where it had to be killed."""
    end = time.monotonic() + deadline_seconds
    code: int | None = None
    pause = 0.002
    while time.monotonic() < end:
        pid, status = os.waitpid(child, os.WNOHANG)
        if pid:
            code = os.waitstatus_to_exitcode(status)
            break
        time.sleep(pause)
        pause = min(pause * 1.5, 0.1)
    with contextlib.suppress(ProcessLookupError):
        os.killpg(child, signal.SIGKILL)
    if code is None:
        os.waitpid(child, 0)
    return code


def judge(example: Example, ended: Ended) -> str | None:
    """Why it is a find; None where it is none."""
    said = f"{ended.out}\n{ended.err}"
    if ended.code is None:
        return "no end"
    if "Traceback (most recent call last)" in said:
        last = next(
            (line for line in reversed(ended.err.splitlines()) if line.strip() and not line.startswith(" ")), "?"
        )
        frames = [line.strip() for line in ended.err.splitlines() if "/qbench/" in line and "File" in line]
        return f"traceback: {last[:90]} | {frames[-1].partition('/qbench/')[2] if frames else ''}"
    if "Exception ignored" in said:
        return "exception ignored"
    codes = (*CODES.get(example.words[0] if example.words else "", (0, 1, 2)),)
    if ended.code not in codes:
        return f"exit code {ended.code}"
    heard = example.output != "all closed"
    if ended.code == 2 and heard and not ended.err.strip():
        return "exit code 2 without a message"
    if len(ended.err) > MOST_LETTERS:
        return "message of too many letters"
    if sum(line.startswith(("error: ", "Error: ")) for line in ended.err.splitlines()) > 1:
        return "more than one message"
    return None


@dataclass
class _Tally:
    """What came of the examples so far."""

    codes: Counter[str]
    finds: dict[str, tuple[int, Example]]
    again: Counter[str]

    def add(self, number: int, example: Example, ended: Ended) -> None:
        """Counts one; a find is told once for each reason."""
        self.codes[f"{example.words[0][:12] if example.words else ''} {ended.code}"] += 1
        why = judge(example, ended)
        if why is None:
            return
        why = why if why.startswith("traceback") else f"{why}: {' '.join(example.words[:2])[:30]}"
        self.again[why] += 1
        if why not in self.finds:
            self.finds[why] = number, example
            print(
                f"FIND {number} {why}\n  {example.text}\n  code {ended.code}, {ended.seconds:.1f} s: "
                f"{ended.err[-300:]!r}",
                flush=True,
            )


def import_all() -> None:
    """What many commands import, once for all children; nothing that starts threads, which a child would wait for."""
    for name in ("onnx", "pandas", "filelock", "jinja2", "yaml", "psutil", "qbench.onnx", "qbench.report.build"):
        importlib.import_module(name)


def serve(options: argparse.Namespace) -> int | None:
    """Runs the examples; the exit code, or None in a forked child, which is to become the command."""
    import_all()
    every = commands()
    gc.collect()
    gc.freeze()  # what a child never frees need not be copied when it ends
    base = Path(tempfile.mkdtemp(prefix="command-lines-"))
    base.chmod(0o755)
    world = base / "world"
    world.mkdir()
    # In a process of its own: what forks may have run no session of ONNX Runtime, whose threads a child lacks.
    subprocess.run([sys.executable, __file__, "--build", str(world)], check=True)
    tally = _Tally(codes=Counter(), finds={}, again=Counter())
    began = time.monotonic()
    numbers = [options.only] if options.only is not None else range(options.first, options.first + options.count)
    for number in numbers:
        example = make(random.Random(f"{options.seed}/{number}"), every)
        folder, heard = base / "here", (base / "out", base / "err")
        if number % SHARED == 0 or not folder.is_dir():
            copy_world(world, folder)
        for file in heard:
            file.write_bytes(b"")
        started = time.monotonic()
        sys.stdout.flush()
        child = os.fork()
        if child == 0:
            become(example, folder, heard)
            return None
        code = attend(child, options.deadline)
        out, err = (file.read_text(errors="replace") for file in heard)
        ended = Ended(code=code, out=out, err=err, seconds=time.monotonic() - started)
        tally.add(number, example, ended)
        if options.only is not None:
            print(example.text, ended.code, out[-3000:], err[-6000:], sep="\n")
        if (number + 1) % SHARED == 0 or code is None:
            os.system(f"chmod -R u+rwX {base}/here 2>/dev/null; rm -rf {base}/here")
    print(
        f"{len(numbers):,} command lines in {time.monotonic() - began:.0f} s, seed {options.seed}: "
        f"{dict(sorted(tally.codes.items()))}"
    )
    for why, (number, _) in tally.finds.items():
        print(f"{tally.again[why]} x {why}, first --only {number}")
    print(f"{len(tally.finds)} different finds")
    shutil.rmtree(base, ignore_errors=True)
    return 1 if tally.finds else 0


def main() -> int:
    """The exit code of the fuzzer; in a forked child that of qbench, by whose end Python ends as after any command."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--count", type=int, default=200, help="how many command lines (default 200)")
    parser.add_argument("--first", type=int, default=0, help="the number of the first one")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--only", type=int, help="the number of one of them, to see it again")
    parser.add_argument("--deadline", type=float, default=60.0, help="seconds that one may take")
    parser.add_argument("--build", type=Path, help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.build is not None:
        build_world(options.build)
        return 0
    code = serve(options)
    if code is not None:
        return code
    from qbench.cli.main import main as qbench_main

    return qbench_main()


if __name__ == "__main__":
    sys.exit(main())
