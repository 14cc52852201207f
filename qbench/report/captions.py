"""What each picture shows in a sentence or two, computed from what is drawn, and the drawn values as a table; pure."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from qbench import formatting
from qbench.progress.table import TextTable
from qbench.report import names
from qbench.report.plots import call_times, costs, growth, layer_errors, peaks, ratios, trade_off_points
from qbench.report.plots.cases import Case, Estimate, list_settings

if TYPE_CHECKING:
    from numpy.typing import NDArray

_SHIPPED = ("ship", "either")
_DESCRIBED = 40  # rows of a table that are read out to those who cannot see the picture


def describe(table: TextTable) -> str:
    """The table in words: ``digits-cnn …: speed-up 2.51; …``."""
    rows = [
        f"{row[0]}: "
        + ", ".join(f"{title} {cell}" for title, cell in zip(table.columns[1:], row[1:], strict=True) if cell)
        for row in table.rows[:_DESCRIBED]
    ]
    return "; ".join(rows)


# --- time against accuracy ------------------------------------------------------------------------------------------


def conclude_trade_off(points: Sequence[trade_off_points.Point]) -> str:
    """Who is both faster and accurate enough, what is shipped, n and the level of the bars."""
    int8 = [point for point in points if point.case.is_int8]
    faster = [point for point in int8 if (point.time.high or point.time.value) < 1]
    both = [point for point in faster if point.case["accuracy.verdict"] == "PASS"]
    limited = trade_off_points.shown_margin(points) is not None
    sentence = f"{_of(len(faster), len(int8), 'int8 variant')} {_be(len(faster))} faster than the fastest fp32"
    if limited and faster:
        kept = "all of them" if len(both) == len(faster) else f"{len(both)} of them"
        kept = ("it" if both else "but not it") if len(faster) == 1 else kept if both else "none of them"
        verb = "keep" if len(faster) > 1 and len(both) != 1 else "keeps"
        sentence += (
            f", and {kept} {verb} the accuracy limit"
            if kept != "but not it"
            else ", but does not keep the accuracy limit"
        )
    shipped = [point for point in points if point.case.role in _SHIPPED]
    parts = [f"{sentence}."]
    if shipped:
        word = "To ship" if shipped[0].case.role == "ship" else "Either will do"
        parts.append(f"{word}: {'; or '.join(map(_tell_point, shipped))}.")
    kept_fp32 = next((point for point in points if point.case.role == "keep fp32"), None)
    if kept_fp32 is not None:
        parts.append(f"Keep {_call(kept_fp32.case)}.")
    tie = points[0].case.number("decision.tie")
    shaded = (
        []
        if tie is None or not any(p.case.role in (*_SHIPPED, "tied") for p in points)
        else [f"green: within {formatting.fixed(tie * 100, 0)} % of the fastest (a tie)"]
    )
    shaded += ["red: more accuracy lost than the suite allows"] if limited else []
    if len(trade_off_points.find_front(points)) > 1:
        shaded.append("grey steps: nothing is both faster and more accurate")
    legend = f" {_upper('; '.join(shaded))}." if shaded else ""
    return f"{' '.join(parts)} {_count_examples([p.case for p in points])}, thin lines are 95 % intervals.{legend}"


def _tell_point(point: trade_off_points.Point) -> str:
    unit = str(point.case["metric.unit"] or "")
    change = f"{ratios.show(point.change, signed=True, least=1)} {unit}".rstrip()
    return f"{_call(point.case)}, {ratios.show(point.time)} times the time, {change}"


def tabulate_points(points: Sequence[trade_off_points.Point]) -> TextTable:
    """Time and change of each case."""
    unit = str(points[0].case["metric.unit"] or "")
    rows = [
        (
            point.case.variant,
            ratios.show(point.time),
            ratios.show(point.change, signed=True, least=1),
            _word(point.case),
        )
        for point in sorted(points, key=lambda point: point.time.value)
    ]
    change = f"accuracy change, {unit}" if unit else "accuracy change"
    return _table(("variant", "time over the fastest fp32", change, "decision"), rows)


# --- speed-up and accuracy ------------------------------------------------------------------------------------------


def conclude_speedups(cases: Sequence[Case]) -> str:
    """How many are faster, and which is the fastest."""
    rated = [(ratio, case) for case in cases if case.is_int8 and (ratio := ratios.over_best(case)) is not None]
    faster = [case for ratio, case in rated if (ratio.low or ratio.value) > 1]
    slower = [case for ratio, case in rated if (ratio.high or ratio.value) < 1]
    ratio, best = max(rated, key=lambda pair: pair[0].value)
    where = f" ({best.setting})" if len(list_settings(cases)) > 1 else ""
    first = f"{_of(len(faster), len(rated), 'int8 variant')} {_be(len(faster))} faster than the fastest fp32"
    undecided = len(rated) - len(faster) - len(slower)
    rest = f"{len(slower) or 'None'} {_be(len(slower))} slower" + (
        f", {undecided} cannot be told apart from it" if undecided else ""
    )
    top = f"the fastest is {_call(best)}, {ratios.show(ratio)} times as fast{where}"
    bars = "bars are 95 % intervals; the thin tick is the speed-up over fp32 on the same runtime"
    return f"{first}. {rest}; {top}. {_count_processes(cases)}; {bars}."


def tabulate_speedups(cases: Sequence[Case]) -> TextTable:
    """Both speed-ups of each case."""
    rows = [
        (
            *_name(case, cases),
            ratios.show(ratios.over_best(case)),
            ratios.show(case.estimate("speedup")),
            str(case["speedup.processes"] or formatting.DASH),
        )
        for case in cases
    ]
    return _table((*_titles(cases), "over the fastest fp32", "over fp32 on the same runtime", "processes"), rows)


def conclude_changes(cases: Sequence[Case]) -> str:
    """How many hold the limit."""
    judged = [case for case in cases if case.is_int8 and ratios.change_of(case) is not None]
    counts = {
        name: sum(case["accuracy.verdict"] == name for case in judged) for name in ("PASS", "INCONCLUSIVE", "FAIL")
    }
    limit = ratios.limit_of(judged)
    shown = (
        ""
        if limit is None
        else f" (limit {limit:+.1f} {judged[0]['metric.unit'] or ''}".replace("-", "\N{MINUS SIGN}").rstrip() + ")"
    )
    level = next((value for case in judged if (value := case.number("accuracy.tested.level"))), None)
    if not sum(counts.values()):
        first = f"The change of accuracy of {_plural(len(judged), 'int8 variant')}; the suite sets no limit"
    else:
        verb = "keeps" if counts["PASS"] == 1 else "keep"
        clauses = [f"{_of(counts['PASS'], len(judged), 'int8 variant')} {verb} the accuracy{shown}"]
        clauses += [f"{counts['INCONCLUSIVE']} cannot be told with so few examples"] if counts["INCONCLUSIVE"] else []
        clauses += [f"{counts['FAIL']} {'loses' if counts['FAIL'] == 1 else 'lose'} more"] if counts["FAIL"] else []
        first = ", ".join(clauses)
    bars = "bars are 95 % intervals"
    if level is not None:
        tested, side = (formatting.fixed(share * 100, 0) for share in (level, (1 - level) / 2))
        bars = f"the thick bar is the tested interval ({tested} %, one side at {side} %), the thin one 95 %"
    return f"{first}. {_count_examples(judged)}, the same for both; {bars}."


def tabulate_changes(cases: Sequence[Case]) -> TextTable:
    """The change of each case with both intervals."""
    unit = f", {cases[0]['metric.unit']}" if cases[0]["metric.unit"] else ""
    rows = []
    for case in cases:
        change, tested = ratios.change_of(case), ratios.tested_of(case)
        both = None if change is None or tested is None else Estimate(change.value, *tested)
        limits = ratios.show(both, signed=True, least=1)
        rows.append(
            (
                *_name(case, cases),
                ratios.show(change, signed=True, least=1),
                limits,
                str(case["accuracy.verdict"] or formatting.DASH),
                f"{int(case['accuracy.n'] or 0):,}",
            )
        )
    return _table((*_titles(cases), f"change{unit}, 95 %", "as tested", "verdict", "examples"), rows)


# --- calls, threads, peaks ------------------------------------------------------------------------------------------

Timed = Mapping[str, "tuple[NDArray[Any], NDArray[Any]]"]


def conclude_calls(cases: Sequence[Case], timed: Timed) -> str:
    """Which case differs most from one process to the next."""
    spreads = []
    for case in cases:
        medians = call_times.process_medians(*timed[case.key])
        if len(medians) > 1:
            spreads.append((max(medians) / min(medians), case))
    total = sum(timed[case.key][1].size for case in cases)
    if spreads:
        spread, case = max(spreads, key=lambda pair: pair[0])
        where = f" ({case.setting})" if len(list_settings(cases)) > 1 else ""
        first = (
            f"From one process to the next the median differs most for {_call(case)}{where}: "
            f"by {formatting.fixed((spread - 1) * 100, 0)} %"
        )
    else:
        first = "Each case was measured in one process: how much processes differ is not known"
    rest = "Each tick is the median of a process; a second hill is noise or a slow path"
    return f"{first}. Shown are n = {total:,} calls. {rest}. The slowest 2 % of calls may lie beyond the axis."


def tabulate_calls(cases: Sequence[Case], timed: Timed) -> TextTable:
    """Percentiles of each case, and the medians of its processes."""
    import numpy as np

    rows = []
    for case in cases:
        process, seconds = timed[case.key]
        quantiles = [formatting.duration(float(value)) for value in np.quantile(seconds, (0.05, 0.5, 0.95))]
        medians = call_times.process_medians(process, seconds)
        ends = f"{formatting.duration(min(medians))} to {formatting.duration(max(medians))}"
        rows.append((*_name(case, cases), f"{seconds.size:,}", *quantiles, str(len(medians)), ends))
    titles = ("calls", "5 % below", "median of all", "95 % below", "processes", "their medians")
    return _table((*_titles(cases), *titles), rows)


def conclude_growth(lines: Sequence[growth.GrowthLine], by: growth.By) -> str:
    """How much of the ideal is reached at the most threads."""
    reached = [(line.gain[-1] / (line.at[-1] / line.at[0]), line) for line in lines]
    share, best = max(reached, key=lambda pair: pair[0])
    last = min(reached, key=lambda pair: pair[0])[1]
    ends = f"{best.at[0]} to {best.at[-1]}"
    span = f"{ends} threads" if by == "threads" else f"batch size {ends}"
    first = (
        f"From {span}, {_call(best.case)} gains most: {best.gain[-1]:.2f} times as "
        f"many examples a second, {formatting.fixed(share * 100, 0)} % of the ideal"
    )
    rest = ""
    if last is not best:
        rest = f"; {_call(last.case)} gains least, {last.gain[-1]:.2f} times"
    return f"{first}{rest}. Shown are n = {_plural(len(lines), 'variant')}; medians, without intervals."


def tabulate_growth(lines: Sequence[growth.GrowthLine], by: growth.By) -> TextTable:
    """The gain of each variant."""
    rows = [
        (
            line.case.variant,
            line.panel,
            "; ".join(f"{at}: {gain:.2f}" for at, gain in zip(line.at, line.gain, strict=True)),
        )
        for line in lines
    ]
    return _table(
        ("variant", "setting", f"examples a second by {growth.WORDS[by]}, over the first"), rows, words=(0, 1, 2)
    )


def conclude_peaks(cases: Sequence[Case]) -> str:
    """How much of the int8 peak the best int8 case reaches."""
    known = peaks.find_peaks(cases)
    named = " and ".join(f"{name} peak {peaks.show_rate(peak)}" for name, peak in known.items())
    rated = [case for case in cases if case.number("roofline.peak_fraction")]
    parts = []
    for name in known:
        own = [case for case in rated if case.is_int8 == (name == "int8")]
        best = max(own, key=lambda case: case.number("roofline.peak_fraction") or 0.0)
        share = formatting.share(best.number("roofline.peak_fraction"), 0)
        parts.append(f"of the {name} peak, {_call(best)} reaches most: {share}")
    doubt = any(case["roofline.peak_shared"] for case in rated)
    shared = " Something else used the core while the peak was measured: the shares are too high." if doubt else ""
    count = _plural(len(rated), "case")
    return f"{_upper('; '.join(parts))}. Measured on one core of this machine: {named}; n = {count}.{shared}"


def tabulate_peaks(cases: Sequence[Case]) -> TextTable:
    """The rate and the share of each case."""
    rows = [
        (*_name(case, cases), peaks.show_rate(peaks.rate_of(case) or 0.0), peaks.show_share(case)) for case in cases
    ]
    return _table((*_titles(cases), "operations a second and core", "share of the peak"), rows)


# --- layers, size, memory, cold start -------------------------------------------------------------------------------


def conclude_layers(layers: Sequence[layer_errors.LayerError], shown: int) -> str:
    """The layer that is farthest from fp32, what clips most, and how many are in float."""
    floats = sum(layer.is_float for layer in layers)
    known = [(layer.sqnr_db, layer) for layer in layers if layer.sqnr_db is not None]
    parts = []
    if known:
        sqnr, worst = min(known, key=lambda pair: pair[0])
        shown_sqnr = f"{sqnr:.1f}".replace("-", "\N{MINUS SIGN}")
        parts.append(f"farthest from fp32 is {worst.name}, with an SQNR of {shown_sqnr} dB")
    clipping = [(layer.clipped, layer) for layer in layers if layer.clipped]
    if clipping:
        clipped, most = max(clipping, key=lambda pair: pair[0])
        parts.append(f"{most.name} clips most, {formatting.share(clipped)} of its values")
    elif any(layer.clipped is not None for layer in layers):
        parts.append("no layer clips")
    parts.append(f"{floats} of {_plural(len(layers), 'layer')} {'stays' if floats == 1 else 'stay'} in float (hatched)")
    cut = f" The {shown} that are farthest are shown." if shown < len(layers) else ""
    values = _range([layer.n for layer in layers if layer.n])
    bars = f"Compared are n = {values} values a layer, on evaluation examples; without intervals; red: share clipped"
    return f"{_upper('; '.join(parts))}. {bars}.{cut}"


def tabulate_layers(layers: Sequence[layer_errors.LayerError]) -> TextTable:
    """The numbers of each layer."""
    rows = [
        (
            layer.name,
            formatting.DASH if layer.sqnr_db is None else f"{layer.sqnr_db:.1f}",
            formatting.share(layer.clipped),
            "float" if layer.is_float else "int8",
        )
        for layer in layers
    ]
    return _table(("layer", "SQNR, dB", "clipped", "runs in"), rows)


def conclude_costs(cases: Sequence[Case], what: costs.What) -> str:
    """The least of all, and what is shipped beside fp32."""
    known = [case for case in cases if costs.amount(case, what)]
    several = len(list_settings(cases)) > 1
    shipped = [case for case in known if case.role in _SHIPPED][:3]
    parts = [f"To ship{_tell_amount(case, what, several=several)}" for case in shipped]
    least = min(known, key=lambda case: costs.amount(case, what) or 0.0)
    if least not in shipped:
        words = {"size": "Smallest of all", "memory": "Least of all", "cold_start": "Fastest of all"}
        parts.append(f"{words[what]}{_tell_amount(least, what, several=several)}")
    notes = {
        "size": "Exact bytes; in brackets the share of fp32's.",
        "memory": "The whole process with its runtime.",
        "cold_start": f"Medians of {_count_starts(known)} fresh processes, libraries imported.",
    }
    count = _plural(len(known), "case")
    return f"{'. '.join(parts)}. Measured are n = {count}, without intervals; hollow bars are fp32. {notes[what]}"


def _tell_amount(case: Case, what: costs.What, *, several: bool) -> str:
    where = f" for {case.setting}" if several else ""
    return f"{where}: {_call(case)}, {costs.show_amount(case, what)}"


def tabulate_costs(cases: Sequence[Case], what: costs.What) -> TextTable:
    """The amount of each case."""
    rows = [(*_name(case, cases), costs.show_amount(case, what)) for case in cases]
    return _table((*_titles(cases), what.replace("_", " ")), rows)


# --- words ----------------------------------------------------------------------------------------------------------


def _titles(cases: Sequence[Case]) -> tuple[str, ...]:
    return ("variant", "setting") if len(list_settings(cases)) > 1 else ("variant",)


def _name(case: Case, cases: Sequence[Case]) -> tuple[str, ...]:
    return (case.variant, case.setting) if len(list_settings(cases)) > 1 else (case.variant,)


def _table(columns: tuple[str, ...], rows: Sequence[tuple[str, ...]], words: tuple[int, ...] = (0,)) -> TextTable:
    return TextTable(columns=columns, rows=tuple(rows), words=words)


def _call(case: Case) -> str:
    """``static int8 on ONNX Runtime``."""
    return names.name_variant(case.mode, str(case["case.recipe"] or "default"), case.backend)


def _word(case: Case) -> str:
    return "fastest fp32" if not case.role and case["decision.is_best_fp32"] else case.role


def _of(count: int, total: int, name: str) -> str:
    """``3 of 15 int8 variants``."""
    if total == 1:
        return f"The one {name}" if count else f"Not the one {name}"
    return f"{count or 'None'} of {total} {name}s"


def _be(count: int) -> str:
    return "is" if count <= 1 else "are"


def _plural(count: int, name: str) -> str:
    return f"{count:,} {name}{'' if count == 1 else 's'}"


def _upper(text: str) -> str:
    return text[:1].upper() + text[1:]


def _range(values: Sequence[float]) -> str:
    if not values:
        return formatting.DASH
    low, high = int(min(values)), int(max(values))
    return f"{low:,}" if low == high else f"{low:,} to {high:,}"


def _collect(cases: Sequence[Case], column: str) -> list[float]:
    return [value for case in cases if (value := case.number(column)) is not None]


def _count_examples(cases: Sequence[Case]) -> str:
    return f"Measured on n = {_range(_collect(cases, 'accuracy.n'))} examples"


def _count_processes(cases: Sequence[Case]) -> str:
    return f"Measured in n = {_range(_collect(cases, 'speedup.processes'))} processes a case"


def _count_starts(cases: Sequence[Case]) -> str:
    return _range(_collect(cases, "cold_start.processes"))
