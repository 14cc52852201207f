"""A program for an emulated CPU: loads one artifact and answers what comes over a pipe. It imports as little as its
backend does: under emulation torch alone takes a minute."""

from __future__ import annotations

import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from qbench import registry
from qbench.backends.base import Backend, Inputs, Runner
from qbench.errors import EvaluateError
from qbench.hosts.base import KernelView
from qbench.hosts.read_back import read_here
from qbench.machine import fingerprint
from qbench.process.pipe import Inbox, pack, receive, send


class Session:
    """What the process is asked for."""

    _runner: Runner

    def open(self, backend_name: str, file: str, versions: Mapping[str, str | None]) -> KernelView:
        """Loads an artifact on one thread; what its kernels say here. Raises ``EvaluateError`` where a package that
        this Python has is not of the version that qbench's own process has."""
        for name, version in fingerprint.versions(versions).items():
            if version not in (None, versions[name]):
                raise EvaluateError(f"{name} is {version} on the emulated CPU and {versions[name]} here")
        view = read_here(backend_name)
        backend: Backend = registry.load("backend", backend_name)
        self._runner = backend.load(Path(file), threads=1)
        self._context = self._runner.context()
        self._context.__enter__()
        return view

    def compute(self, inputs: Inputs) -> list[Any]:
        """All outputs of a batch, floats as float32."""
        import numpy as np

        outputs = self._runner.all_outputs(self._runner(self._runner.prepare(inputs)))
        return [np.array(output, dtype=np.float32 if output.dtype.kind == "f" else None) for output in outputs]


def serve(requests: int, answers: int) -> None:
    """Answers each request, ``(method, arguments)``, with ``("result", value)`` or ``("error", text)`` until the pipe
    is closed."""
    session, inbox = Session(), Inbox()
    while True:
        try:
            method, arguments = receive(requests, inbox)
        except EOFError:
            return
        try:
            answer = ("result", getattr(session, method)(*arguments))
        except Exception as error:  # whatever a runtime raises is the answer to that request, and the next is served
            lines = str(error).strip().splitlines() or ["no message"]
            answer = ("error", f"{type(error).__name__}: {lines[0][:500]}")
        send(answers, pack(answer))


if __name__ == "__main__":
    serve(int(sys.argv[1]), int(sys.argv[2]))
