"""Rules of qbench/gating/timed_postprocess.py that need no process; what is timed: tests/gating/test_rerun.py."""

from __future__ import annotations

from pathlib import Path

from made_records import fp32, info, int8

from qbench import suite
from qbench.gating.timed_postprocess import find_timed
from qbench.models.postprocess import Postprocess
from qbench.record.schema import Accuracy, OutputScore
from qbench.record.stored_run import StoredRun

TEXT = """suite: demo
models:
- {{name: net, source: {{python: 'net.py:build'}}, postprocess: {{python: 'd.py:f', timed: {timed}}}{more}}}
data: {{dataset: digits}}
matrix: {{}}
"""


def find_in_record(timed: str = "true", more: str = "", outputs: tuple[str, ...] = ("a", "b")) -> object:
    """What is timed with a case of a network with these outputs."""
    names = tuple(OutputScore(name=name, judged=None) for name in outputs)
    record = int8(accuracy=Accuracy(metric="map", value=0.5, low=None, high=None, n=9, outputs=names))
    run = StoredRun(folder=Path("r"), info=info(), records=(fp32(), record))
    return find_timed(suite.parse(TEXT.format(timed=timed, more=more)), run, record)


def test_it_is_given_outputs_by_name_where_there_are_several_and_the_suite_names_none() -> None:
    """As evaluation and the run's own measurement give them; of a run without the digest as it is."""
    both = find_in_record()
    assert isinstance(both, Postprocess)
    assert both.names == ("a", "b")
    for alone in (find_in_record(outputs=("a",)), find_in_record(outputs=()), find_in_record(more=", output: a")):
        assert isinstance(alone, Postprocess)
        assert alone.names == ()
    assert find_in_record(timed="false") is None


def test_nothing_is_timed_with_a_network_that_the_suite_does_not_have() -> None:
    """As of a run whose suite was edited since; nor where a network has no postprocess."""
    run = StoredRun(folder=Path("r"), info=info(), records=(fp32(), int8()))
    demo = suite.parse(TEXT.format(timed="true", more=""))
    assert isinstance(find_timed(demo, run, int8()), Postprocess)
    assert find_timed(demo, run, int8("gone/static/onednn/t1/b1")) is None
    bare = suite.parse("suite: demo\nmodels: [digits-cnn]\ndata: {dataset: digits}\nmatrix: {}\n")
    assert find_timed(bare, run, int8("digits-cnn/static/onednn/t1/b1")) is None
