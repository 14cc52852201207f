"""What one artifact answers on several hosts, in words: a sentence each, a table, the order of speed, JSON; pure."""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import asdict

from qbench import formatting
from qbench.compare.compare import oriented
from qbench.errors import first_names
from qbench.portability.compare_hosts import ArtifactAnswers, HostAnswer, OutputChange, is_emulated
from qbench.progress.table import TextTable
from qbench.quant.target import name_cpus
from qbench.record.schema import NATIVE, TargetFacts, read_case_id
from qbench.record.stored_run import MetricInfo

SCHEMA = 1
ONE_HOST = (
    "this run has one host, so there is nothing to compare: run its suite again with --hosts native,avx2, or with "
    "hosts: [native, avx2] in it"
)
CUT = "this run has no case yet of another host, though it plans some: go on with it (qbench run SUITE --resume RUN)"
_IN_16_BITS = "; its kernels add in 16 bits there"
NAMED_LAYERS, NAMED_EXAMPLES = 3, 5
_CHOSEN = {"nearest to flipping": "that are nearest to flipping", "largest outputs": "with the largest outputs"}
_NO_METRIC = MetricInfo(name="metric")


def explain_nothing(planned: Iterable[str]) -> str:
    """Why a run has nothing to compare, for the ids of the cases that it plans."""
    keys = (read_case_id(case) for case in planned)
    return CUT if any(key is not None and key.host != NATIVE for key in keys) else ONE_HOST


def list_sentences(answers: Sequence[ArtifactAnswers], metric: MetricInfo | None) -> tuple[str, ...]:
    """One sentence for each artifact: safe everywhere that was tried, or what it loses where."""
    return tuple(f"{each.model}, {each.variant}: {describe_artifact(each, metric or _NO_METRIC)}." for each in answers)


def describe_artifact(answers: ArtifactAnswers, metric: MetricInfo) -> str:
    """The hosts that were tried, in words; the native one is what they are held against."""
    elsewhere = [answer for answer in answers.hosts if answer.host != NATIVE]
    tried = [answer for answer in elsewhere if answer.status != "skipped"]
    clauses = [_describe_host(answer, metric) for answer in elsewhere]
    clauses += [f"no case of it on {host}" for host in answers.missing]
    safe = any(is_safe(answer) for answer in tried) and all(is_safe(answer) or _agrees(answer) for answer in tried)
    words = ["safe everywhere that was tried" if safe else "", _describe_target(answers.target)]
    start = ", ".join(text for text in words if text)
    return f"{start}{': ' if start else ''}{'; '.join(clauses) or 'tried on this machine alone'}"


def _describe_target(target: TargetFacts | None) -> str:
    """``built for avx2 and arm (34 of 50 layers narrowed)``; empty for an artifact for one machine alone."""
    if target is None:
        return ""
    built = f"built for {name_cpus(target.cpus)}"
    if target.overflowing:
        return f"{built}, though sums of {first_names(target.overflowing, NAMED_LAYERS)} may overflow"
    done = [f"{target.layers_narrowed} of {target.layers} layers narrowed"] if target.layers else []
    done += [f"compiled for {target.compiled_for}"] if target.compiled_for else []
    return f"{built} ({', '.join(done)})" if done else built


def is_safe(answer: HostAnswer) -> bool:
    """Whether an artifact is shown to answer on a host as it does where it was built, within the margin."""
    if answer.status != "ok" or (answer.facts is not None and answer.facts.note is not None):
        return False
    return not is_emulated(answer.facts) and _judge_native(answer) == "PASS"


def _agrees(answer: HostAnswer) -> bool:
    """Whether no class turned among the few examples that an emulated host answered: that shows no artifact safe, and
    none unsafe."""
    outputs = answer.outputs
    return is_emulated(answer.facts) and outputs is not None and (outputs.same_bits or outputs.agreement == 1)


def _describe_host(answer: HostAnswer, metric: MetricInfo) -> str:
    """``the same bits on avx2``, ``loses 4.5 points of top1 on avx2``, or why nothing is known."""
    if answer.status != "ok":
        verb = "not tried" if answer.status == "skipped" else "failed"
        return f"{verb} on {answer.host} ({answer.reason})"
    if answer.other_file:
        return f"not judged on {answer.host}: another file ran there (its sha256 is not that of {NATIVE})"
    note = "" if answer.facts is None or answer.facts.note is None else f" ({answer.facts.note})"
    if is_emulated(answer.facts):
        return _describe_emulated(answer)
    if answer.outputs is not None and answer.outputs.same_bits:
        return f"the same bits on {_name_host(answer)}, {answer.outputs.n:,} examples{note}"
    return _describe_change(answer, metric) + note


def _describe_emulated(answer: HostAnswer) -> str:
    """What the few examples say that an emulated host answered, as which they were chosen; never an accuracy."""
    outputs, examples = answer.outputs, None if answer.facts is None else answer.facts.examples
    if outputs is None or examples is None:
        return f"nothing to compare on {answer.host}: the outputs of it and of {NATIVE} are not both stored"
    whole = f"the {outputs.n:,} examples of {examples.of:,} {_CHOSEN.get(examples.chosen, examples.chosen)}"
    same = f"; the bits are those of {' and '.join(answer.same_as)}" if answer.same_as else ""
    if outputs.same_bits:
        return f"the same bits on {answer.host}, for {whole}"
    size = _describe_size(answer)
    return f"on {answer.host} {outputs.differing:,} of {whole} differ, {size}{same}; that is no accuracy"


def _name_host(answer: HostAnswer) -> str:
    """``avx2``, ``avx2 (predicted)``."""
    predicted = answer.facts is not None and answer.facts.kind == "predicted"
    return f"{answer.host} (predicted)" if predicted else answer.host


def _name_remedy(answer: HostAnswer) -> str:
    """``; its kernels add in 16 bits there: built with ... no sum overflows``; empty where that is not why."""
    if answer.facts is None or answer.facts.int8_sums != "16 bits":
        return ""
    if answer.facts.saturating == () and answer.facts.uncounted is None:
        return "; no sum of those counted leaves 16 bits: its kernels there round otherwise"
    return _IN_16_BITS + ("" if answer.remedy is None else f": built with {answer.remedy} no sum can overflow")


def _describe_layers(answer: HostAnswer) -> str:
    """``; sums saturate in 3 layers: conv1 (0.3 % of its sums), ...``, or why that is not known; else empty."""
    facts = answer.facts
    if facts is None:
        return ""
    unknown = "" if facts.uncounted is None else f"; not every layer was counted ({facts.uncounted})"
    if facts.saturating is None:
        return unknown and f"; its layers are not named: {facts.uncounted}"
    if not facts.saturating:
        return unknown
    layers = facts.saturating
    worst = ", ".join(
        f"{layer.name} ({formatting.share(layer.saturated / layer.sums, 2)} of its sums)"
        for layer in layers[:NAMED_LAYERS]
    )
    more = len(layers) - NAMED_LAYERS
    counted = "" if facts.counted_examples is None else f", counted on {facts.counted_examples:,} examples"
    count = "1 layer" if len(layers) == 1 else f"{len(layers)} layers"
    return f"; sums saturate in {count}: {worst}{f' and {more} more' if more > 0 else ''}{counted}{unknown}"


def _describe_change(answer: HostAnswer, metric: MetricInfo) -> str:
    """What other answers cost, with its limits and the verdict."""
    test, outputs = answer.against_native, answer.outputs
    bits = (
        "" if outputs is None else f"; {outputs.differing:,} of {outputs.n:,} examples differ, {_describe_size(answer)}"
    )
    bits += _describe_layers(answer)
    if test is None:
        return f"not judged on {_name_host(answer)}: no score of each example is stored for it and for {NATIVE}{bits}"
    change = f"{metric.name} {metric.show_change(oriented(test.delta, metric.sign))}"
    if test.outcome == "FAIL":
        margin = f"the margin of {answer.margin:g}"
        return f"loses on {_name_host(answer)} more than {margin} ({change}{bits}){_name_remedy(answer)}"
    if test.outcome == "PASS":
        return f"within the margin on {_name_host(answer)} ({change}{bits})"
    reason = test.reason or "more examples would tell"
    return f"undecided on {_name_host(answer)} ({change}; {reason}{bits}){_name_remedy(answer)}"


def _describe_size(answer: HostAnswer) -> str:
    outputs = answer.outputs
    assert outputs is not None
    same = "" if outputs.agreement is None else f", {formatting.share(outputs.agreement)} with the same class"
    return f"by up to {outputs.largest:.3g}{same}"


def make_table(answers: Sequence[ArtifactAnswers], metric: MetricInfo | None) -> TextTable:
    """One row for each artifact and host but the native one."""
    shown_metric = metric or _NO_METRIC
    rows = [_make_row(each, answer, shown_metric) for each in answers for answer in each.hosts if answer.host != NATIVE]
    titles = ("artifact", "host", "bits", "largest", "same class", shown_metric.name, "vs native", "vs fp32")
    return TextTable(columns=titles, rows=tuple(rows), words=(0, 1, 2, 6, 7))


def _make_row(artifact: ArtifactAnswers, answer: HostAnswer, metric: MetricInfo) -> tuple[str, ...]:
    outputs, test = answer.outputs, answer.against_native
    name = f"{artifact.model} · {artifact.variant}"
    if answer.status != "ok":
        return name, answer.host, answer.status, "", "", "", "", ""
    change = None if test is None else oriented(test.delta, metric.sign)
    return (
        name,
        _name_host(answer),
        "unknown" if outputs is None else _count_differing(answer, outputs),
        "" if outputs is None else f"{outputs.largest:.3g}",
        "" if outputs is None or outputs.agreement is None else formatting.share(outputs.agreement),
        formatting.with_limits(change, scale=metric.scale, signed=True, least=metric.least),
        _judge_native(answer),
        answer.against_fp32 or "",
    )


def _count_differing(answer: HostAnswer, outputs: OutputChange) -> str:
    """``same``, ``other``; of an emulated host of how many."""
    if is_emulated(answer.facts):
        return f"{outputs.n - outputs.differing} of {outputs.n} same"
    return "same" if outputs.same_bits else "other"


def _judge_native(answer: HostAnswer) -> str:
    """The verdict against the native host: the same bits lose nothing, however few examples there are."""
    if answer.outputs is not None and answer.outputs.same_bits and not is_emulated(answer.facts):
        return "PASS"
    return "" if answer.against_native is None else answer.against_native.outcome


def list_speed_orders(answers: Sequence[ArtifactAnswers]) -> tuple[str, ...]:
    """For each model the int8 artifacts that were measured on several hosts, the fastest first on each of them."""
    return tuple(
        line for model in dict.fromkeys(each.model for each in answers) for line in _order_model(model, answers)
    )


def _order_model(model: str, answers: Sequence[ArtifactAnswers]) -> Iterator[str]:
    """The orders of one model: one line where all hosts agree, else one for each."""
    timed = [
        {answer.host: (answer.p50_seconds, each.variant) for answer in each.hosts if answer.p50_seconds is not None}
        for each in answers
        if each.model == model
    ]
    hosts = list(dict.fromkeys(host for times in timed for host in times))
    common = [times for times in timed if all(host in times for host in hosts)]
    if len(hosts) < 2 or len(common) < 2:
        return
    orders = {host: " < ".join(name for _, name in sorted(times[host] for times in common)) for host in hosts}
    if len(set(orders.values())) == 1:
        yield f"{model}: the order of speed is the same on {' and '.join(hosts)}: {orders[hosts[0]]}"
    else:
        yield from (f"{model}: order of speed on {host}: {order}" for host, order in orders.items())


def list_other_classes(answers: Sequence[ArtifactAnswers]) -> tuple[str, ...]:
    """For each artifact and host the first examples that get another class than where it was built."""
    lines = []
    for each in answers:
        for answer in each.hosts:
            ids = () if answer.outputs is None else answer.outputs.other_class
            if ids:
                more = f" and {len(ids) - NAMED_EXAMPLES} more" if len(ids) > NAMED_EXAMPLES else ""
                named = ", ".join(ids[:NAMED_EXAMPLES])
                lines.append(f"{each.model} · {each.variant} on {_name_host(answer)}: another class for {named}{more}")
    return tuple(lines)


def as_json(suite: str, answers: Sequence[ArtifactAnswers], metric: MetricInfo | None) -> str:
    """Everything, for a program; changes are oriented so that better is positive."""
    sentences = list_sentences(answers, metric)
    data = {
        "schema": SCHEMA,
        "suite": suite,
        "metric": None if metric is None else metric.name,
        "artifacts": [
            {**asdict(each), "sentence": sentence} for each, sentence in zip(answers, sentences, strict=True)
        ],
        "order_of_speed": list(list_speed_orders(answers)),
    }
    return json.dumps(data, ensure_ascii=False, indent=1) + "\n"
