"""Sessions of ONNX Runtime on the CPU: opened, called, their errors in words."""

from __future__ import annotations

import re
import tempfile
import threading
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

from numpy.typing import NDArray

from qbench.errors import BuildError, ModelError, out_of_memory
from qbench.quant.artifacts import onnx_outline

Array = NDArray[Any]
# The longest inference that is waited for, of a batch on few cores: a Loop in a file from elsewhere may have no end.
CALL_SECONDS = 600.0
_LONGEST = 400  # characters of a library's message that are quoted


# Where in its own sources ONNX Runtime raised an error, with the signature of the function.
_ORIGIN = re.compile(r"/onnxruntime_src/\S+:\d+ .*?\)(?: const)? (?=[A-Z])")


def plain(error: BaseException, *temporary: Path | str) -> str:
    """A library's message on one line, without its error numbers and without paths that mean nothing to a reader."""
    text = " ".join(str(error).split())
    text = re.sub(r"^\[ONNXRuntimeError\] : \d+ : (\w+) : ", r"\1: ", text)
    text = _ORIGIN.sub("", text)
    for path in temporary:
        text = re.sub(rf"{re.escape(str(path))}[^\s'\"]*", "the model", text)
    return text[:_LONGEST] or "no message"


def session_options(threads: int) -> Any:
    """Options of every session: that many intra-op threads, sequential, no spinning, errors only."""
    import onnxruntime

    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = threads
    options.inter_op_num_threads = 1
    options.execution_mode = onnxruntime.ExecutionMode.ORT_SEQUENTIAL
    options.log_severity_level = 3
    # Spinning threads slow whatever else runs on the machine, the other arms of the measurement included.
    options.add_session_config_entry("session.intra_op.allow_spinning", "0")
    options.add_session_config_entry("session.inter_op.allow_spinning", "0")
    return options


def spare_memory(options: Any) -> Any:
    """The same options; a session with them gives back what a call takes: an arena keeps it, in pieces that arrays of
    other sizes do not fit, and a block for all activations would stand beside the first call's memory. It computes the
    same."""
    options.enable_mem_pattern = options.enable_cpu_mem_arena = False
    return options


def runtime_errors() -> tuple[type[Exception], ...]:
    """The classes of ONNX Runtime's own errors, one for each of its status codes, which share no base."""
    from onnxruntime.capi import onnxruntime_pybind11_state as binding

    return tuple(value for value in vars(binding).values() if isinstance(value, type) and issubclass(value, Exception))


def open_session(model: Path | bytes, *, threads: int = 1, options: Any = None) -> Any:
    """An inference session on the CPU provider, of a file or of what would stand in it; raises ``BuildError`` with the
    runtime's own words."""
    import onnxruntime

    try:
        return onnxruntime.InferenceSession(
            model if isinstance(model, bytes) else str(model),
            options or session_options(threads),
            providers=["CPUExecutionProvider"],
        )
    except runtime_errors() as error:
        if out_of_memory(error):
            raise
        words = re.sub(r"Load model from .* failed: ?", "", plain(error))
        raise BuildError(f"ONNX Runtime cannot load the model: {words}") from error


def call(session: Any, names: Sequence[str] | None, feed: Mapping[str, Array], *, seconds: float | None = None) -> Any:
    """The named outputs (None: all) of one inference, as a list; raises what the runtime raises, and ``ModelError``
    where it does not end within ``seconds`` (None: ``CALL_SECONDS``)."""
    import onnxruntime

    seconds = CALL_SECONDS if seconds is None else seconds
    options, late = onnxruntime.RunOptions(), threading.Event()
    options.log_severity_level = 4  # what is wrong is in the exception

    def end() -> None:
        late.set()
        options.terminate = True  # asked for between two nodes, in a Loop too

    timer = threading.Timer(seconds, end)
    timer.daemon = True
    timer.start()
    try:
        return session.run(None if names is None else list(names), dict(feed), options)
    except runtime_errors() as error:
        if not late.is_set():
            raise
        raise ModelError(
            f"one inference takes longer than {seconds:g} s: is there a Loop in it that does not end?"
        ) from error
    finally:
        timer.cancel()


def bind_run(session: Any) -> Callable[[tuple[Array, ...]], Array]:
    """Of a session: inputs -> the first output of one inference."""
    names = [value.name for value in session.get_inputs()]

    def run_once(inputs: tuple[Array, ...]) -> Array:
        result: Array = session.run(None, dict(zip(names, inputs, strict=True)))[0]
        return result

    return run_once


def run(file: Path, inputs: tuple[Array, ...]) -> Array:
    """The first output of one inference of a file on one thread."""
    return bind_run(open_session(file))(inputs)


def open_lean(file: Path, *, options: Any = None) -> Any:
    """A session that holds little memory: weights once while a large file loads, and of a call nothing. For what is
    not timed, and no deployed file, which is opened as its users open it."""
    options = spare_memory(options or session_options(1))
    with tempfile.TemporaryDirectory() as folder:
        return open_session(onnx_outline.write_weights_apart(file, Path(folder)), options=options)


def run_all(file: Path, inputs: tuple[Array, ...]) -> list[Array]:
    """All outputs of one inference."""
    session = open_session(file)
    outputs: list[Array] = session.run(
        None, {port.name: x for port, x in zip(session.get_inputs(), inputs, strict=True)}
    )
    return outputs
