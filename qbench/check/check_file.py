"""A file -> all that can be said of it without a suite, a data set or its source."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

from qbench import formatting
from qbench.backends.base import Inputs
from qbench.check import core_peak, example_inputs, graph_faults, race, runtimes
from qbench.check.beside_fp32 import GOOD_DB, Beside, Contest, Opponent, open_opponent, race_files, race_onnx
from qbench.check.budget import open_budget
from qbench.check.example_inputs import Given
from qbench.check.examples import Examples, read_examples, require_fit
from qbench.check.exported_program import explain_exported
from qbench.check.finding import SEVERITIES, FileCheck, Finding, Race, RuntimeCheck
from qbench.decide.names import backend_name
from qbench.errors import CaseError, ModelError, QbenchError, UsageError, first_names
from qbench.machine import fingerprint
from qbench.process.child_process import call
from qbench.quant.artifacts import onnx_file, torchscript_archive
from qbench.quant.artifacts.onnx_file import DeclaredInput

FEW = 0.5  # of the multiply-accumulates in int8: below, a file that is meant to be int8 is not
_MUCH_CONVERSION = 0.15  # of a call
# What others cause, and what another runtime than the first says: told last, in this order. That a runtime refuses the
# file goes before what differs from CPU to CPU, the time that conversions take.
_LAST = (
    "far-on-data",
    "flips-on-data",
    "refused-elsewhere",
    "conversions",
    "slower",
    "far-from-fp32",
    "folded-elsewhere",
    "faster-elsewhere",
    "float",
)
_MUCH_FASTER = 0.67  # of the time of the first runtime: more than a disturbed machine adds to one of two
_LITTLE_WORK = 2e-4  # seconds of a call


def check_file(
    file: Path,
    *,
    against: Path | None = None,
    shapes: Sequence[str] = (),
    constants: Sequence[str] = (),
    data: str | None = None,
    threads: int = 1,
    seconds: float = race.SECONDS,
) -> FileCheck:
    """What there is to say of a model file; ``against``: its fp32 (default: made from an ONNX file by taking its
    quantization away); ``shapes`` and ``constants`` as ``example_inputs.read_given`` takes them; ``data``: examples to
    answer, as ``qbench init`` takes them (default: random inputs). Raises ``UsageError`` for a file that is not there
    or of no known format, and for shapes that are not known; ``DataError`` as the data set does."""
    if not file.is_file():
        raise UsageError(f"{file}: no such file")
    title, backends = runtimes.FORMATS.get(file.suffix.lower(), ("", ()))
    if not backends:
        known = ", ".join(runtimes.FORMATS)
        raise UsageError(f"{file}: '{file.suffix}' is no format that is checked; known are {known}")
    if (shapes or constants) and data is not None:
        raise UsageError("--data says what the inputs are: leave --shape and --constant out")
    given = example_inputs.read_given(shapes, constants)
    budget = open_budget(file)
    contest = Contest(file=file, against=against, threads=threads, seconds=seconds, budget=budget)
    if title == "ONNX":
        return _check_onnx(contest, given, data)
    return _check_other(contest, title, backends, given, data)


def _check_onnx(contest: Contest, given: Given, data: str | None) -> FileCheck:
    from qbench.quant.artifacts import onnx_check
    from qbench.quant.onnx.graph.quantized import why_not_float

    file = contest.file
    try:
        model = onnx_check.load(file, valid=False)
    except ModelError as error:
        words = str(error).removeprefix(f"{file}: ")
        broken = Finding(severity="fault", code="broken-file", text=words, advice="save or download the file again")
        return _finish(contest, "ONNX", (), data, (), Beside(), [broken])
    declared = onnx_file.list_inputs(model)
    examples = None if data is None else read_examples(data, file.stem, model)
    if examples is None:
        inputs = example_inputs.make_inputs(declared, given)
    else:
        batch = onnx_file.find_fixed_batch(declared) or 1
        require_fit(examples, declared, batch)
        inputs = examples.take(0, batch)
    quantized = why_not_float(model) is not None
    checks = tuple(
        runtimes.check_runtime(backend, file, inputs, contest.threads, contest.budget)
        for backend in runtimes.FORMATS[".onnx"][1]
    )
    if contest.threads == 1 and any(check.layers for check in checks):
        peak = core_peak.find_peak()
        count = inputs[0].shape[0] if inputs[0].ndim else 1
        checks = tuple(core_peak.add_share(check, count, peak) for check in checks)
    findings = [*_judge_loading(checks), *_judge_known_batch(checks)]
    runs = next((check for check in checks if check.refused is None), None)
    if runs is None:
        findings += [*graph_faults.find_faults(model)] if quantized else []
        beside = Beside(no_race="no installed runtime runs it")
    elif not quantized:
        findings.append(_say_float())
        if contest.against is None:
            beside = Beside(no_race="nothing in it is quantized; name what to hold it against with --against")
        else:
            opponent = Opponent(file=contest.against, name=str(contest.against))
            beside = race_files(contest, opponent, runs.runtime, inputs, examples)
            findings += _judge_time(runs, beside.race)
    else:
        findings, beside = _check_quantized(contest, model, declared, checks, runs, inputs, examples, findings)
    shown = _list_inputs(declared, inputs)
    return _finish(contest, "ONNX", shown, data, checks, beside, findings)


def _check_quantized(
    contest: Contest,
    model: Any,
    declared: Sequence[DeclaredInput],
    checks: Sequence[RuntimeCheck],
    runs: RuntimeCheck,
    inputs: Inputs,
    examples: Examples | None,
    findings: list[Finding],
) -> tuple[list[Finding], Beside]:
    """What stands in an int8 file, what ``runs`` it as which layers, and how it does beside its fp32. Nothing is timed
    while its sums are read and its fp32 is made, so that these share the cores."""
    with ThreadPoolExecutor() as beside_it:
        overflow = beside_it.submit(lambda: [*_find_overflow(contest)])
        findings += graph_faults.find_faults(model)
        with open_opponent(contest, model) as opponent:
            findings += overflow.result()
            if isinstance(opponent, str):
                beside = Beside(no_race=opponent)
            else:
                beside = race_onnx(contest, opponent, model, declared, runs, inputs, examples)
    for check in checks:
        findings += _judge_layers(check, findings, first=check is runs)
    findings += _judge_time(runs, beside.race)
    findings += _find_faster(checks, runs)
    return findings, beside


def _find_faster(checks: Sequence[RuntimeCheck], runs: RuntimeCheck) -> Iterator[Finding]:
    """Another runtime that takes much less for the file than the one that is raced."""
    own = runs.call_seconds
    for check in checks:
        other = check.call_seconds
        if own and other and other < _MUCH_FASTER * own:
            times = [
                f"{formatting.duration(seconds)} on {backend_name(each.runtime)}"
                for seconds, each in ((other, check), (own, runs))
            ]
            yield Finding(
                severity="note",
                code="faster-elsewhere",
                text=f"a call takes {times[0]}, {times[1]}: timed one after the other, not in turns",
                advice="a suite with both backends says which is faster, and what answers differ",
            )


def _count_bytes(file: Path) -> int:
    """Those of a file and, of an ONNX file, of the files beside it that hold its weights."""
    files = {file}
    if file.suffix.lower() == ".onnx":
        from qbench.quant.artifacts import onnx_file

        files |= onnx_file.list_external(file)
    return sum(each.stat().st_size for each in files)


def _finish(
    contest: Contest,
    title: str,
    inputs: tuple[str, ...],
    data: str | None,
    checks: tuple[RuntimeCheck, ...],
    beside: Beside,
    findings: Sequence[Finding],
) -> FileCheck:
    """All that was found out, causes first."""
    return FileCheck(
        file=str(contest.file),
        format=title,
        bytes=_count_bytes(contest.file),
        inputs=inputs,
        data=data,
        runtimes=checks,
        race=beside.race,
        no_race=beside.no_race,
        change=beside.change,
        findings=tuple(sorted((*findings, *beside.findings), key=_rank)),
    )


def _check_other(
    contest: Contest,
    title: str,
    backends: Sequence[str],
    given: Given,
    data: str | None,
) -> FileCheck:
    """A file that tells its inputs to its runtime alone: they are those of the data, or floats of shapes that are
    named."""
    file = contest.file
    if (exported := explain_exported(file)) is not None:
        no_race = Beside(no_race="nothing runs it as it is")
        return _finish(contest, "torch.export program", (), data, (), no_race, [exported])
    if title == "TorchScript" and (other := _explain_other_archive(file)) is not None:
        no_race = Beside(no_race="nothing runs it as it is")
        return _finish(contest, title, (), data, (), no_race, [other])
    if not given.shapes and data is None:
        raise UsageError(
            f"{file}: this format does not tell its inputs: name their shapes, as in --shape 1x3x224x224, or --data"
        )
    examples = None if data is None else read_examples(data, file.stem, None)
    if examples is None:
        named = [(name or "the input", sizes) for name, sizes in given.shapes.items()]
        declared = [DeclaredInput(name=name, dtype="float32", sizes=sizes) for name, sizes in named]
        inputs = example_inputs.make_inputs(declared, Given(constants=given.constants))
    else:
        inputs = examples.take(0, 1)
        declared = [
            DeclaredInput(name=f"input {place}", dtype=str(array.dtype), sizes=array.shape)
            for place, array in enumerate(inputs)
        ]
    arguments = (inputs, contest.threads, contest.budget)
    checks = tuple(runtimes.check_runtime(backend, file, *arguments) for backend in backends)
    runs = next((check for check in checks if check.refused is None), None)
    findings = [*_judge_loading(checks), *_judge_known_batch(checks)]
    beside = Beside(no_race="name its fp32 with --against" if runs else "no installed runtime runs it")
    if runs is not None and contest.against is not None:
        opponent = Opponent(file=contest.against, name=str(contest.against))
        beside = race_files(contest, opponent, runs.runtime, inputs, examples)
    if runs is not None:
        if runs.seconds and "int8 product" not in runs.seconds:
            findings.append(_say_float())
        findings += _judge_time(runs, beside.race)
    return _finish(contest, title, _list_inputs(declared, inputs), data, checks, beside, findings)


def _explain_other_archive(file: Path) -> Finding | None:
    """What a file is that is no TorchScript archive, without opening it as one; None for an archive."""
    try:
        torchscript_archive.list_operators(file)
    except ModelError as error:
        words, _, advice = str(error).removeprefix(f"{file}: ").partition("; ")
        return Finding(severity="fault", code="broken-file", text=words, advice=advice)
    return None


def _list_inputs(declared: Sequence[DeclaredInput], inputs: Inputs) -> tuple[str, ...]:
    return tuple(
        f"{entry.name} {'x'.join(map(str, array.shape)) or 'scalar'} {array.dtype}"
        for entry, array in zip(declared, inputs, strict=True)
    )


def _rank(finding: Finding) -> int:
    """Causes before what they cause, faults first among them."""
    if finding.code in _LAST:
        return len(SEVERITIES) + _LAST.index(finding.code)
    return SEVERITIES.index(finding.severity)


def _judge_loading(checks: Sequence[RuntimeCheck]) -> Iterator[Finding]:
    """A runtime that is installed and refuses: a fault where it is the first one, or none runs the file."""
    nobody = all(check.refused is not None for check in checks)
    for place, check in enumerate(checks):
        if check.refused is None or check.version is None:
            continue
        matters = place == 0 or nobody
        yield Finding(
            severity="fault" if matters else "warning",
            code="refused" if matters else "refused-elsewhere",
            text=f"{backend_name(check.runtime)} {check.version} does not run it: {check.refused}",
            advice=check.advice,
        )


def _judge_known_batch(checks: Sequence[RuntimeCheck]) -> Iterator[Finding]:
    """A runtime whose answers are others where it is told how many examples come: a fault on the first one."""
    for place, check in enumerate(checks):
        if check.known_batch_db is not None and check.known_batch_db < GOOD_DB:
            yield Finding(
                severity="warning" if place else "fault",
                code="known-batch",
                text=f"compiled for one batch size, {backend_name(check.runtime)} gives other answers than "
                f"compiled for any: {check.known_batch_db:.1f} dB apart",
                advice="leave its batch size open where you compile it (`qbench run` then does), or take another "
                "runtime",
            )


def _say_float() -> Finding:
    return Finding(
        severity="note",
        code="float",
        text="nothing in it is int8: it is a float model",
        advice="`qbench onnx all` quantizes an ONNX file on your data; a suite finds out which int8 variant to ship",
    )


def _judge_layers(runs: RuntimeCheck, findings: Sequence[Finding], *, first: bool) -> Iterator[Finding]:
    """What of a quantized file ran in float all the same: a fault on the ``first`` runtime that runs it."""
    share, told = runs.int8_share, {finding.code for finding in findings}
    if share is None or share >= FEW or told & {"tables-only", "weights-only"}:
        return
    if any(layer.weight_bits is not None for layer in runs.layers):
        if first:
            text = "its weights are in few bits, its activations floats"
            yield Finding(severity="note", code="weight-only", text=text)
        return
    floats = sorted((layer for layer in runs.layers if not layer.int8), key=lambda layer: -(layer.macs or 0))
    names = first_names([f"{layer.name} ({layer.operator})" for layer in floats], 3)
    folded = "its bytes are folded back to floats" if share == 0 else "part of them is folded back to floats"
    yield Finding(
        severity="fault" if first else "warning",
        code="folded" if first else "folded-elsewhere",
        text=f"{formatting.share(share, 0)} of the multiply-accumulates run in int8 on {backend_name(runs.runtime)}: "
        f"{folded}, {names} run in float",
        advice="an int8 kernel needs Q and DQ around the whole layer: on its input, its weight, and, for convolutions, "
        "behind its output (behind the ReLU that follows); unsigned activations with signed weights",
        layers=tuple(layer.name for layer in floats),
    )


def _judge_time(runs: RuntimeCheck, raced: Race | None) -> Iterator[Finding]:
    """Slower than fp32, and time that conversions take."""
    total = sum(runs.seconds.values())
    share = runs.seconds.get("conversion", 0.0) / total if total else 0.0
    if share >= _MUCH_CONVERSION:
        yield Finding(
            severity="warning",
            code="conversions",
            text=f"{formatting.share(share, 0)} of a call on {backend_name(runs.runtime)} only converts between "
            "float and int8",
            advice="quantize what lies between int8 layers too, or leave small layers between float ones in float",
        )
    if raced is not None and raced.low > 1:
        little = ": a call is so short that int8 has little to gain" if (runs.call_seconds or 1) < _LITTLE_WORK else ""
        yield Finding(
            severity="fault",
            code="slower",
            text=f"it takes {raced.ratio:.2f} [{raced.low:.2f}, {raced.high:.2f}] times as long as {raced.opponent} on "
            f"{backend_name(raced.runtime)}{little}",
            advice=_advise_slower(raced),
        )


def _advise_slower(raced: Race) -> str:
    """What to do about it: by the causes that were tried."""
    confirmed = [trial for trial in raced.trials if trial.confirmed]
    if confirmed:
        return f"{confirmed[0].text}: see the causes below; or ship fp32 on this CPU"
    if raced.trials and raced.trials[-1].gain is None:
        return f"ship fp32 on this CPU; what may help and was not tried: {raced.trials[-1].text}"
    return "ship fp32 on this CPU, or mend what stands above; `qbench explain` tries more causes on a suite's run"


def _find_overflow(contest: Contest) -> Iterator[Finding]:
    """Layers whose sums of two products leave 16 bits on x86 CPUs without VNNI, by their weights alone."""
    try:
        layers: tuple[str, ...] = call(_list_overflowing_here, contest.file, limits=contest.budget.limits)
    except (CaseError, QbenchError):  # a file that the runtime refuses is told already
        return
    if not layers:
        return
    here = any(word in fingerprint.isa() for word in fingerprint.ADD_IN_32_BITS)
    yield Finding(
        severity="warning",
        code="overflow",
        text=f"sums of {first_names(layers, 3)} can leave 16 bits on x86 CPUs without VNNI"
        f"{', and this one has it: answers differ there' if here else ', and this is one'}",
        advice="quantize with reduce_range=True or weights of 7 bits, or by qbench, which narrows only the channels "
        "that need it; `qbench portability` predicts the answers",
        layers=layers,
    )


def _list_overflowing_here(file: Path, *, progress: object) -> tuple[str, ...]:
    """In this process, a child."""
    from qbench.quant.onnx.onnxruntime_layers import own_name
    from qbench.quant.saturation import onnxruntime_products, sections
    from qbench.quant.saturation.onnxruntime_products import IntegerLayer
    from qbench.quant.saturation.pair_sums import find_pairs

    model = sections.optimize(file)
    onnxruntime_products.split_dynamic(model)
    constants = sections.read_constants(model)
    largest = onnxruntime_products.read_largest(model, constants)
    names = []
    for node in model.graph.node:
        layer = onnxruntime_products.read_layer(node, constants, largest)
        if isinstance(layer, IntegerLayer) and len(find_pairs(layer.product)):
            names.append(own_name(sections.name_layer(node, {})))
    return tuple(names)
