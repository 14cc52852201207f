"""Rules of explain/tables: where the time of a call goes, in rows."""

from dataclasses import replace

from made_situations import layer_time, node
from made_trials import evaluate, loss_trial

from qbench.explain.explanation import LayerLoss, explain_error
from qbench.explain.tables import LONGEST_LAYERS, make_error_table, make_kind_table, make_time_table
from qbench.explain.text import describe_watching
from qbench.explain.where_time_goes import TimeShares
from qbench.formatting import DASH
from qbench.progress.table import align
from qbench.quant.artifacts.node_profile import CallProfile
from qbench.record.stored_run import MetricInfo
from qbench.stats.interval_type import Interval


def make_times(*, scale=1.0, call=1e-3, layers=3):
    """A call of 1 ms: 0.5 ms of products, 0.2 ms of conversions, and so many layers; fp32 without conversions."""
    nodes = (node("int8 product", "l0", 5e-4), node("conversion", seconds=2e-4))
    case = CallProfile(nodes=nodes, call_seconds=call, watched_seconds=1.25 * call, scale=scale)
    fp32 = CallProfile(nodes=(node("float product", "l0", 8e-4),), call_seconds=9.5e-4, watched_seconds=1e-3)
    return TimeShares(case=case, fp32=fp32, layers=tuple(layer_time(f"l{n}", 5e-4, 8e-4) for n in range(layers)))


def test_the_table_of_kinds_says_what_share_of_the_call_each_takes():
    """With what lies beside the nodes, where watching left that to be known, and the call itself."""
    assert make_kind_table(make_times()).rows == (
        ("int8 product", "500 µs", "50.0 %", "0 s"),
        ("float product", "0 s", "0 %", "800 µs"),
        ("conversion", "200 µs", "20.0 %", "0 s"),
        ("beside the nodes", "300 µs", "30.0 %", "150 µs"),
        ("a call", "1.00 ms", "", "950 µs"),
    )
    unknown = make_kind_table(make_times(scale=0.9)).rows[-2]
    assert unknown == ("beside the nodes", "less than watching costs", "", "150 µs")


def test_what_watching_costs_is_said_with_what_was_made_of_it():
    """A quarter of the call; nodes that were shortened are said to be so."""
    assert describe_watching(make_times()) == "Watching adds 250 µs to a call (25.0 %)."
    assert describe_watching(make_times(scale=0.9)) == (
        "Watching adds 250 µs to a call (25.0 %); what it saw was shortened by one factor to what a call takes."
    )


def test_the_longest_layers_are_shown():
    """Their first so many, with the share of the peak where it is known."""
    table = make_time_table(make_times(layers=LONGEST_LAYERS + 1))
    assert len(table.rows) == LONGEST_LAYERS
    assert table.rows[0] == ("l0", "conv", "int8 product", "500 µs", "800 µs", "")
    assert len(make_time_table(make_times(layers=2)).rows) == 2


def test_a_layer_that_was_not_tried_with_those_above_has_a_dash():
    """Beside what it takes away alone; so has one whose score is not known."""
    changed = replace(loss_trial("layers", 0.5, part="b"), metric_change=Interval(value=0.02, low=0.01, high=0.03))
    layers = (
        LayerLoss(trial=loss_trial("layers", 0.5, part="a"), together=None), LayerLoss(trial=changed, together=0.75),
    )  # fmt: skip
    table = make_error_table(explain_error(evaluate(), (), (), layers), MetricInfo(name="top1"))
    assert table.rows == (
        ("a", "50.0 [48.0, 52.0] %", DASH, DASH),
        ("b", "50.0 [48.0, 52.0] %", "75.0 %", "+2.0 [+1.0, +3.0] points"),
    )


def test_names_stand_to_the_left():
    """Of a layer: its name, its operator and its kind."""
    lines = align(make_time_table(make_times(layers=1))).splitlines()
    header, row = lines[0], lines[1]
    assert row.index("int8 product") == header.index("kind")
