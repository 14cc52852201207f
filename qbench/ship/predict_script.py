"""``predict.py``: the artifact, run by its runtime alone, with the preprocessing of the suite."""

from __future__ import annotations

from collections.abc import Sequence

from qbench.backends.program import Program
from qbench.evaluate.batch_size import BASE
from qbench.record.schema import Record
from qbench.record.stored_run import ExamplesInfo, RunInfo

_USAGE = "python predict.py EXAMPLES.npz ANSWERS.npz"
_UNKNOWN = "# The run does not tell the suite's preprocessing: give examples as the network takes them."


def write_script(program: Program, info: RunInfo, record: Record, fixed_batch: int | None) -> str:
    """The text of a script of at most 30 lines that needs numpy and the runtime.

    A call has as many examples as evaluation gave it, since answers may depend on how many share it: by dynamic ranges,
    and by the kernels that a runtime takes for so many."""
    case = record.case
    batch = 1 if program.single else fixed_batch or (case.batch_size if case.mode == "dynamic" else BASE)
    lines = [
        f'"""{_plain(case.id)}: {_USAGE}, or import predict."""',
        "import sys",
        "from pathlib import Path",
        "import numpy as np",
        *program.imports,
        "",
        f'FILE, THREADS = str(Path(__file__).with_name("{program.file}")), {case.threads}',
        *program.load,
        "",
        "def preprocess(examples):",
        *_indent(_preprocessing(info.examples)),
        "",
        "def call(arrays):",
        *_indent(program.call),
        "",
        "def predict(*inputs):  # an array for each input of the network, examples along the first axis",
        "    arrays = [np.ascontiguousarray(preprocess(array)) for array in inputs]",
        *_indent(_calls(batch, batch == fixed_batch)),
        "",
        'if __name__ == "__main__":',
        f'    source, target = sys.argv[1:] if len(sys.argv) == 3 else sys.exit("usage: {_USAGE}")',
        "    np.savez(target, *predict(*np.load(source).values()))",
    ]
    return "\n".join(lines) + "\n"


def _preprocessing(examples: ExamplesInfo | None) -> list[str]:
    """The body of ``preprocess``, which does to a bit what ``datasets.preprocessing.Preprocessing`` does."""
    if examples is None:
        return [_UNKNOWN, "return examples"]
    ordered = f"np.flip(examples, {examples.channel_axis})" if examples.reverse_channels else "examples"
    if not examples.to_float:
        return [f"return {ordered}"]
    return [
        f"scaled = {ordered}.astype(np.float32) * np.float32({examples.scale!r})",
        f"return (scaled - {_constant(examples.mean, examples)}) / {_constant(examples.std, examples)}",
    ]


def _calls(batch: int, is_fixed: bool) -> list[str]:
    """What ``predict`` does with the preprocessed arrays, so many examples a call. ``is_fixed``: the model takes no
    fewer, so that the last call is filled with its last example, as evaluation does."""
    rows = f'array.take(range(i, i + {batch}), 0, mode="clip")' if is_fixed else f"array[i : i + {batch}]"
    return [
        f"answers = [call([{rows} for array in arrays]) for i in range(0, len(arrays[0]), {batch})]",
        "return [np.concatenate(output)[: len(arrays[0])] for output in zip(*answers)]",
    ]


def _axis(examples: ExamplesInfo) -> str:
    """The shape that lays one number per channel along the channels' axis."""
    if examples.channel_axis < 0:
        return f"(-1{', 1' * (-examples.channel_axis - 1)})"
    sizes = ["1"] * (1 + len(examples.shapes[0]))
    sizes[examples.channel_axis] = "-1"
    return f"({', '.join(sizes)})"


def _constant(values: Sequence[float], examples: ExamplesInfo) -> str:
    if len(values) == 1:
        return f"np.float32({values[0]!r})"
    return f"np.float32({list(values)!r}).reshape{_axis(examples)}"


def _indent(lines: Sequence[str]) -> list[str]:
    return [f"    {line}" for line in lines]


def _plain(text: str) -> str:
    """A text that ends no docstring."""
    return text.replace("\\", "/").replace('"', "'")
