"""``README.md`` of a shipped folder: what it is, how to run it, what was measured where, what it must not run on."""

from __future__ import annotations

from qbench import formatting, registry
from qbench.backends.base import Backend
from qbench.backends.program import Program
from qbench.decide.names import variant_name
from qbench.decide.tested_change import ShownChange, change_of, name_levels, score_of
from qbench.formatting import code, markdown
from qbench.quant.target import CPUS, adds_in_16_bits, name_cpus, without_native
from qbench.record.schema import Record, TargetFacts
from qbench.record.stored_run import MetricInfo, StoredRun
from qbench.report import build
from qbench.stats.interval_type import Interval

_BY_HAND = "This case was named by hand; it is not what the run says to ship."
_TORCH = (
    "On Linux, pip takes torch with the libraries of graphics cards, which are several gigabytes. Nothing here uses "
    "them: for the build for CPUs alone, name PyTorch's package index for CPUs (its installation page has the address) "
    "to pip with `--index-url` when you install torch, and install the rest of requirements.txt after it."
)


def write_readme(run: StoredRun, record: Record, program: Program, answer: str | None) -> str:
    """The page as Markdown. ``answer``: the run's decision, where the case is its pick."""
    case, info = record.case, run.info
    judged = build.judge(run)
    change = change_of(judged, record)
    figures = _list_figures(record, info.metric, score_of(judged, record), change)
    lines = [f"# {markdown(case.model)}: {markdown(variant_name(record))}", ""]
    lines += [_BY_HAND if answer is None else markdown(answer), ""]
    lines += [
        "## Run it",
        "",
        "```sh",
        "python3 -m venv .venv && .venv/bin/pip install -r requirements.txt",
        ".venv/bin/python predict.py EXAMPLES.npz ANSWERS.npz",
        "```",
        "",
        f"{code(program.file)} is the model. `predict.py` needs numpy and {', '.join(program.libraries)} alone. "
        "It reads an array for each input of the network, in their order, and writes one for each output. "
        f"Python {markdown(str(info.environment.get('python', 'of any version')))} was used.",
        "",
        *([_TORCH, ""] if "torch" in program.libraries else []),
        *_list_inputs(run),
        "",
        "## What was measured",
        "",
        f"{markdown(_describe_machine(run))}, {case.threads} thread{'' if case.threads == 1 else 's'}, "
        f"{case.batch_size} example{'' if case.batch_size == 1 else 's'} a call.",
        "",
        "| | |",
        "|---|---|",
        *(f"| {markdown(name)} | {markdown(value)} |" for name, value in figures),
        "",
        *([f"In brackets are {_name_levels(change)}.", ""] if any("[" in value for _, value in figures) else []),
        "## What it must not run on",
        "",
        *(f"- {line}" for line in list_warnings(run, record)),
        "",
        "`provenance.json` holds the digests of the weights, the data and the suite, all versions and the whole record "
        f"of {code(case.id)}.",
    ]
    return "\n".join(lines) + "\n"


def _list_inputs(run: StoredRun) -> list[str]:
    examples = run.info.examples
    if examples is None:
        return ["The run does not tell what its examples look like: see the suite's data set."]
    shapes = zip(examples.types, examples.shapes, strict=True)
    described = [f"{kind} of shape n{''.join(f' x {size}' for size in shape)}" for kind, shape in shapes]
    plural = "Its input is" if len(described) == 1 else "Its inputs are"
    return [f"{plural} {markdown(', '.join(described))}, before the preprocessing that `predict.py` does."]


def _describe_machine(run: StoredRun) -> str:
    environment, started = run.info.environment, run.info.started or ""
    return f"On {environment.get('cpu') or 'an unknown CPU'}, {started.partition('T')[0] or 'at an unknown date'}"


def _name_levels(change: ShownChange | None) -> str:
    """``95 % limits, of the accuracy change 90 % limits, those of the test``."""
    if change is None or not change.tested:
        return "95 % limits"
    return f"95 % limits, of the change against fp32 {name_levels([(change.level, True)])}"


def _list_figures(
    record: Record, metric: MetricInfo | None, score: ShownChange | None, change: ShownChange | None
) -> list[tuple[str, str]]:
    figures = []
    latency, speedup, artifact, accuracy = record.latency, record.speedup, record.artifact, record.accuracy
    if latency is not None and latency.p50_seconds is not None:
        scale, unit = formatting.time_unit(latency.p50_seconds)
        interval = Interval(value=latency.p50_seconds, low=latency.p50_low, high=latency.p50_high)
        figures.append(("time of a call (median)", f"{formatting.with_limits(interval, scale=1 / scale)} {unit}"))
    if speedup is not None:
        interval = Interval(value=speedup.value, low=speedup.low, high=speedup.high)
        figures.append((f"times as fast as {speedup.baseline}", formatting.with_limits(interval)))
    if accuracy is not None and metric is not None and score is not None:
        unit = " %" if metric.percent else f" {metric.own_unit}".rstrip()
        shown = formatting.with_limits(score.interval, scale=metric.scale, least=metric.least)
        figures.append((accuracy.metric, f"{shown}{unit} on {accuracy.n:,} examples"))
        if change is not None:
            figures.append(("change against fp32", metric.show_change(change.interval)))
    if artifact is not None:
        figures.append(("size of the file", formatting.size(artifact.size_bytes)))
        if artifact.coverage is not None:
            share = formatting.share(artifact.coverage.share_of(record.case.mode))
            figures.append((f"multiply-accumulates {artifact.coverage.describe_format(record.case.mode)}", share))
    return figures


def list_warnings(run: StoredRun, record: Record) -> list[str]:
    """Where the file does not load, and where it may answer otherwise than was measured; Markdown."""
    backend: Backend = registry.load("backend", record.case.backend)
    lines = [markdown(reason) for cpu in CPUS if (reason := backend.why_not_for(cpu)) is not None]
    artifact = record.artifact
    target = None if artifact is None else artifact.target
    if backend.machine_code:
        compiled_for = None if target is None else target.compiled_for
        made_for = compiled_for or run.info.environment.get("cpu") or "the CPU that compiled it"
        lines.append(f"It holds machine code: it runs on {markdown(str(made_for))} and newer ones alone.")
    if artifact is not None and artifact.coverage is not None:
        lines.append(_explain_target(target))
    lines.append(
        "With other versions than those of requirements.txt, on other CPUs and with other numbers of threads it may be "
        "slower, or round otherwise; `qbench portability` says what it answers there before you ship it."
    )
    return lines


def _explain_target(target: TargetFacts | None) -> str:
    if target is not None and target.overflowing:
        return (
            "Sums of some of its layers can leave 16 bits, as CPUs without VNNI (avx2, avx512) add products: answers "
            "may be wrong there."
        )
    cpus = () if target is None else without_native(target.cpus)
    made_for = f"these kinds of CPU: {name_cpus(cpus)}" if cpus else "the CPU that it was built on alone"
    if adds_in_16_bits(cpus):
        return f"It was made for {made_for}. On others its answers may differ."
    return (
        f"It was made for {made_for}. Where int8 kernels add products in 16 bits (avx2, avx512: x86 without VNNI), "
        "sums may saturate and answers be wrong."
    )
