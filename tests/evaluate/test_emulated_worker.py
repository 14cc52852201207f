"""The program of an emulated CPU: what it refuses, and what it answers."""

from __future__ import annotations

import contextlib
import json
import os
from pathlib import Path

import numpy as np
import pytest

from qbench import registry
from qbench.errors import EvaluateError
from qbench.evaluate import emulated_worker
from qbench.evaluate.emulated_worker import Session
from qbench.process.pipe import Inbox, pack, receive, send


@pytest.fixture
def file(tmp_path):
    """A file of the pretended backend."""
    (tmp_path / "model.json").write_text(json.dumps({"seconds": 0.0, "mode": "static"}))
    return str(tmp_path / "model.json")


def test_a_package_of_another_version_answers_nothing(file):
    """Answers of other kernels would look like those of another CPU; a package that is not needed there is none."""
    with pytest.raises(EvaluateError, match=rf"numpy is {np.__version__} on the emulated CPU and 0\.1 here"):
        Session().open("fake", file, {"numpy": "0.1"})
    session = Session()
    session.open("fake", file, {"numpy": np.__version__, "no-such-package": "1.0"})
    (output,) = session.compute((np.ones((2, 3), np.float32),))
    assert output.dtype == np.float32


def test_all_outputs_are_answered(file, monkeypatch):
    """Floats as float32, the others as they are."""
    session = Session()
    session.open("fake", file, {})
    several = lambda result: (result.astype(np.float64), np.arange(2), result[:, :1])  # noqa: E731
    monkeypatch.setattr(type(session._runner), "all_outputs", lambda self, result: several(self.outputs(result)))
    answered = session.compute((np.ones((2, 3), np.float32),))
    assert [(str(output.dtype), output.shape) for output in answered] == [
        ("float32", (2, 10)),
        ("int64", (2,)),
        ("float32", (2, 1)),
    ]


def test_each_request_is_answered_until_the_pipe_is_closed(monkeypatch):
    """An error is an answer, too: its kind and first line, and the next request is served."""
    (requests, ask), (answers, tell) = os.pipe(), os.pipe()
    said = {"a": "one line\nanother", "b": "", "c": "x" * 600}

    def compute(self, what):
        if what in said:
            raise ValueError(said[what])
        return [what]

    monkeypatch.setattr(emulated_worker.Session, "compute", compute)
    for what in ("first", *said, "last"):
        send(ask, pack(("compute", (what,))))
    os.close(ask)
    emulated_worker.serve(requests, tell)
    inbox = Inbox()
    assert [receive(answers, inbox) for _ in range(5)] == [
        ("result", ["first"]),
        ("error", "ValueError: one line"),
        ("error", "ValueError: no message"),
        ("error", f"ValueError: {'x' * 500}"),
        ("result", ["last"]),
    ]
    for descriptor in (requests, answers, tell):
        os.close(descriptor)


def test_an_artifact_is_loaded_on_one_thread_in_its_context(file, monkeypatch):
    """As natively: another number of threads may add up in another order."""
    did, backend = [], registry.load("backend", "fake")
    runner = backend.load(Path(file), threads=1)

    @contextlib.contextmanager
    def context(self):
        did.append("entered")
        yield

    monkeypatch.setattr(type(runner), "context", context)
    monkeypatch.setattr(type(backend), "load", lambda self, path, *, threads: did.append((path, threads)) or runner)
    Session().open("fake", file, {})
    assert did == [(Path(file), 1), "entered"]
