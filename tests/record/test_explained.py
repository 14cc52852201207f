"""What a run keeps of explanations, and what is refused of a file that somebody else wrote."""

from __future__ import annotations

import json
from dataclasses import replace

import pytest
from made_explanations import ACCURACY, explain_time, limits

from qbench.record.explained import (
    MOST_BYTES,
    ErrorFigures,
    ExplainedCause,
    TimeFigures,
    keep_explained,
    read_explained,
    to_stored,
)
from qbench.record.run_files import DamagedFile
from qbench.stats.interval_type import Interval

CAUSE = ExplainedCause(title="too little work", change="batches of 8", saving=limits(2.0), share=0.5, seconds=1e-5)
CASE = replace(
    explain_time(
        "net/static/onednn/t1/b1", 3e-5, 1e-5, best="fp32", environment=("unset ONEDNN_MAX_CPU_ISA",),
        overlapping=(CAUSE,),
    ),
    causes=(CAUSE,), unexplained=0.5, note="no change",
)  # fmt: skip
LINES = {
    "explained.jsonl": (
        '{"case": "net/static/onednn/t1/b1", "seconds": 3e-05, "fp32_seconds": null, "best_seconds": 1e-05, "best": '
        '"fp32", "causes": [{"title": "too little work", "change": "batches of 8", "gain": {"value": 2.0, "low": 1.99, '
        '"high": 2.01}, "seconds": 1e-05, "share": 0.5}], "unexplained": 0.5, "suite": null, "environment": '
        '["unset ONEDNN_MAX_CPU_ISA"], "accuracy": "no change", "over_fp32": null, "off_core": null, "overlapping": '
        '[{"title": "too little work", "change": "batches of 8", "gain": {"value": 2.0, "low": 1.99, "high": 2.01}, '
        '"seconds": 1e-05, "share": 0.5}]}'
    ),
    "explained-accuracy.jsonl": (
        '{"case": "net/static/onednn/t1/b1", "metric": "top1", "n": 500, "sqnr_db": 9.5, "against_fp32": {"value": '
        '-0.2, "low": -0.21000000000000002, "high": -0.19}, "causes": [{"title": "<b>bold</b>", "change": "calibrated '
        'by mse", "removed": {"value": 0.6, "low": 0.59, "high": 0.61}, "metric_change": {"value": 0.05, "low": 0.04, '
        '"high": 0.060000000000000005}, "beyond": 0.6}, {"title": "a layer loses more in int8 than others", "change": '
        '"conv in float", "removed": {"value": 0.5, "low": 0.49, "high": 0.51}, "metric_change": {"value": 0.12, '
        '"low": 0.11, "high": 0.13}, "beyond": 0.3}], "layers": [{"name": "conv", "removed": {"value": 0.5, "low": '
        '0.49, "high": 0.51}, "metric_change": {"value": 0.12, "low": 0.11, "high": 0.13}, "together": 0.5}, {"name": '
        '"head", "removed": {"value": -0.1, "low": -0.11, "high": -0.09000000000000001}, "metric_change": null, '
        '"together": null}], "left": 0.1, "suite": "quantize: {static: {skip_layers: [conv]}}", "metric_change": '
        '{"value": 0.19, "low": 0.18, "high": 0.2}, "note": null}'
    ),
}  # as version 0.2.0 wrote them before both were one type


@pytest.mark.parametrize("explained", [CASE, ACCURACY], ids=["time", "error"])
def test_an_explanation_is_read_as_it_was_kept(tmp_path, explained):
    """And a later one of the same case takes its place."""
    kind = type(explained.figures)
    fast = replace(explained, case="net/static/fbgemm/t1/b1", causes=())
    for each in (explained, fast, replace(explained, unexplained=0.25)):
        keep_explained(tmp_path, each)
    assert read_explained(tmp_path, kind) == (fast, replace(explained, unexplained=0.25))


@pytest.mark.parametrize("explained", [CASE, ACCURACY], ids=["time", "error"])
def test_a_line_has_the_keys_that_it_always_had(tmp_path, explained):
    """Files of older versions are read, and older versions read what is written."""
    kind = type(explained.figures)
    assert to_stored(explained) == json.loads(LINES[kind.file])
    (tmp_path / kind.file).write_text(LINES[kind.file], encoding="utf-8")
    assert read_explained(tmp_path, kind) == (explained,)


def test_a_run_without_explanations_has_none(tmp_path):
    """Most have none."""
    assert read_explained(tmp_path, TimeFigures) == ()
    assert read_explained(tmp_path, ErrorFigures) == ()


@pytest.mark.parametrize(
    "wrong",
    [
        replace(CASE, figures=replace(CASE.figures, seconds=1e308)),
        replace(CASE, causes=(replace(CAUSE, saving=Interval(value=1e308, low=None, high=None)),)),
        replace(CASE, causes=(replace(CAUSE, saving=Interval(value=1e308, low=1e307, high=1e308)),)),
        replace(CASE, figures=replace(CASE.figures, over_fp32=limits(-1.0))),
        replace(CASE, figures=replace(CASE.figures, over_fp32=Interval(value=1.0, low=0.0, high=2.0))),
        replace(CASE, figures=replace(CASE.figures, seconds=-1e-9)),
        replace(CASE, figures=replace(CASE.figures, off_core=-0.1)),
        replace(CASE, figures=replace(CASE.figures, off_core=1.1)),
        replace(CASE, unexplained=1e9 + 0.5),
        replace(CASE, unexplained=-1e9 - 0.5),
        replace(CASE, figures=replace(CASE.figures, seconds=1e9 + 0.5)),
        replace(CASE, causes=(replace(CAUSE, saving=Interval(value=0.0, low=-1e9 - 0.5, high=1.0)),)),
        replace(CASE, figures=replace(CASE.figures, environment=("export LD_PRELOAD=/tmp/evil.so",))),
        replace(CASE, figures=replace(CASE.figures, environment=("unset ONEDNN_MAX_CPU_ISA; rm -r /",))),
        replace(ACCURACY, figures=replace(ACCURACY.figures, n=-1)),
        replace(ACCURACY, figures=replace(ACCURACY.figures, against_fp32=Interval(value=1e308))),
    ],
)
def test_numbers_and_settings_that_qbench_never_writes_are_refused(tmp_path, wrong):
    """A gain of 1e308 cannot be shown, and a foreign run must not tell its reader what to preload."""
    kind = type(wrong.figures)
    (tmp_path / kind.file).write_text(json.dumps(to_stored(wrong)), encoding="utf-8")
    with pytest.raises(DamagedFile, match=f"{kind.file}: cannot be read as explanations; delete it"):
        read_explained(tmp_path, kind)


def test_the_greatest_numbers_that_qbench_writes_are_read(tmp_path):
    """Up to a billion either way, and shares from nothing to all."""
    widest = Interval(value=0.0, low=-1e9, high=1e9)
    extremes = (
        replace(CASE, unexplained=1e9, figures=replace(CASE.figures, seconds=0.0, best_seconds=1e9, off_core=0.0)),
        replace(CASE, case="m/static/onednn/t2/b1", figures=replace(CASE.figures, off_core=1.0, over_fp32=limits(1e8))),
        replace(CASE, case="m/static/onednn/t4/b1", causes=(replace(CAUSE, saving=widest, share=-1e9),)),
    )
    for explained in extremes:
        keep_explained(tmp_path, explained)
    assert read_explained(tmp_path, TimeFigures) == extremes
    nobody = replace(ACCURACY, figures=replace(ACCURACY.figures, n=0))
    keep_explained(tmp_path, nobody)
    assert read_explained(tmp_path, ErrorFigures) == (nobody,)


def test_empty_lines_hold_no_case_and_ten_megabytes_are_read(tmp_path):
    """A few thousand cases take no more: a longer file is none of qbench's, whatever it holds."""
    file = tmp_path / TimeFigures.file
    line = f"\n{json.dumps(to_stored(CASE))}\n"
    file.write_text(line + " " * (10_000_000 - len(line)), encoding="utf-8")
    assert file.stat().st_size == MOST_BYTES
    assert read_explained(tmp_path, TimeFigures) == (CASE,)
    with file.open("a", encoding="utf-8") as longer:
        longer.write(" ")
    with pytest.raises(DamagedFile, match="cannot be read as explanations"):
        read_explained(tmp_path, TimeFigures)


def test_names_are_kept_as_letters_and_what_is_no_number_is_not_kept(tmp_path):
    """JSON has no NaN; what was known before stays."""
    named = replace(CASE, case="n\u00e4t/static/onednn/t1/b1")
    keep_explained(tmp_path, named)
    assert '"n\u00e4t/static/' in (tmp_path / TimeFigures.file).read_text(encoding="utf-8")
    with pytest.raises(ValueError, match="JSON"):
        keep_explained(tmp_path, replace(CASE, unexplained=float("nan")))
    assert read_explained(tmp_path, TimeFigures) == (named,)


@pytest.mark.parametrize(
    "text", ["[1]", '{"case": 1}', '{"case": "x"}', "{", '{"case": "x", "seconds": 1e999}', chr(0xD800)]
)
@pytest.mark.parametrize("kind", [TimeFigures, ErrorFigures])
def test_a_file_that_is_none_of_qbenchs_is_refused(tmp_path, kind, text):
    """By name, with what to do."""
    (tmp_path / kind.file).write_bytes(text.encode("utf-8", "surrogatepass"))
    with pytest.raises(DamagedFile, match=f"{kind.file}: cannot be read as explanations; delete it"):
        read_explained(tmp_path, kind)
