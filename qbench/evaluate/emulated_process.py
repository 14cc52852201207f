"""A process on an emulated CPU and what it is asked; held by a child process of qbench's, which ends it."""

from __future__ import annotations

import os
import signal
import subprocess
from pathlib import Path
from typing import Any, cast

import numpy as np
from numpy.typing import NDArray

import qbench
from qbench import registry
from qbench.backends.base import Backend
from qbench.build import Artifact
from qbench.data import Data
from qbench.errors import CaseError, EvaluateError
from qbench.evaluate.worker import fill_batch, take_usable
from qbench.hosts.base import EmulatedPython, Host, KernelView
from qbench.hosts.qemu import UNSUPPORTED
from qbench.machine import fingerprint
from qbench.process.pipe import Inbox, NoMessage, pack, receive, send

Array = NDArray[Any]
_PROGRAM = ("-P", "-m", "qbench.evaluate.emulated_worker")
_ENDING_SECONDS = 30.0
_CAUSES = {
    "SIGILL": "it holds instructions that this CPU does not have, so it does not run there",
    "SIGKILL": "most often: the system ran out of memory",
}


class EmulatedProcess:
    """One artifact on an emulated CPU; ``folder`` is an empty one for what it needs and writes. Raises ``CaseError``
    where it does not start, load or answer there."""

    def __init__(self, host: str, artifact: Artifact, data: Data, folder: Path) -> None:
        plugin: Host = registry.load("host", host)
        python = plugin.start_python(folder)
        self._artifact, self._data = artifact, data
        self._log = folder / "log"
        self._inbox = Inbox()
        (theirs, self._requests), (self._answers, their_answers) = os.pipe(), os.pipe()
        _forbid_core_dumps()
        with self._log.open("wb") as log:
            self._process = subprocess.Popen(
                [*python.command, *_PROGRAM, str(theirs), str(their_answers)],
                pass_fds=(theirs, their_answers),
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=subprocess.STDOUT,
                env=_list_variables(plugin, python),
            )
        os.close(theirs)
        os.close(their_answers)

    def open(self) -> KernelView:
        """Loads the artifact by libraries of the versions that are installed here; what the kernels say there."""
        name = self._artifact.backend
        backend: Backend = registry.load("backend", name)
        versions = fingerprint.versions(("numpy", *backend.libraries()))
        return cast(KernelView, self._ask("open", name, str(self._artifact.file), versions))

    def compute(self, start: int, stop: int) -> dict[int, Array]:
        """The outputs (float32) of the evaluation examples from ``start`` up to ``stop``, as one batch, by position:
        the first, and those behind it that have a row of floats for each example."""
        inputs = fill_batch(self._data.evaluation(start, stop), self._artifact.built.fixed_batch or 0)
        outputs = [np.asarray(output) for output in self._ask("compute", inputs)]
        rows = [output[: stop - start] if output.shape[:1] == (len(inputs[0]),) else output for output in outputs]
        return take_usable(rows, stop - start)

    def close(self) -> None:
        """Ends the process."""
        for descriptor in (self._requests, self._answers):
            os.close(descriptor)
        self._process.kill()
        self._process.wait()

    def _ask(self, method: str, *arguments: Any) -> Any:
        try:
            send(self._requests, pack((method, arguments)))
            kind, value = receive(self._answers, self._inbox)
        except (EOFError, BrokenPipeError) as error:
            raise CaseError(self._explain_end()) from error
        except NoMessage as error:
            raise CaseError(f"what the emulated process sent is no answer of qbench's ({error})") from error
        if kind == "error":
            raise EvaluateError(value)
        return value

    def _explain_end(self) -> str:
        """Why the process ended, with what it wrote last."""
        try:
            code = self._process.wait(timeout=_ENDING_SECONDS)
        except subprocess.TimeoutExpired:
            self._process.kill()
            return "the emulated process closed its connection to qbench and was stopped"
        if code < 0:
            name = signal.Signals(-code).name
            cause = _CAUSES.get(name)
            return f"the emulated process was ended by {name}{f' ({cause})' if cause else ''}"
        lines = self._log.read_text(errors="replace").splitlines()
        lines = [line for line in lines if line.strip() and UNSUPPORTED not in line]
        last = f"; its last words: {lines[-1][:300]}" if lines else ""
        return f"the emulated process ended with exit code {code}{last}"


def _list_variables(plugin: Host, python: EmulatedPython) -> dict[str, str]:
    """The variables of the process: this one's, with those of the host and qbench's own place behind what is set, and
    what its Python needs."""
    variables = {**os.environ, **plugin.environment()}
    place = str(Path(qbench.__file__).parent.parent)
    variables["PYTHONPATH"] = os.pathsep.join([*filter(None, [variables.get("PYTHONPATH")]), place])
    return {**variables, **python.variables}


def _forbid_core_dumps() -> None:
    """An artifact that cannot run there ends the process by a signal: no memory image is written for it."""
    import resource

    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
