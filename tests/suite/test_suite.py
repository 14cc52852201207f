"""qbench.suite: YAML text -> Suite, or every problem at once, at its place, with what to do."""

from __future__ import annotations

import json
import os
import pickle
import subprocess
import sys
from pathlib import Path

import pytest
import yaml
from hypothesis import given
from hypothesis import strategies as st

from qbench import registry
from qbench.errors import SuiteError, UsageError
from qbench.quant.recipe import Recipe
from qbench.suite import Suite, json_schema, messages, parse, read
from qbench.suite import yaml_tree as yaml_text
from qbench.suite.types import shown

HERE = Path(__file__).parent.parent
SUITES = HERE.parent / "suites"
SMALL = "suite: small\nmodels: [digits-cnn]\ndata: {dataset: digits}\nmatrix: {}\n"
KNOWN = {
    "backend": ("fake", "fbgemm", "onednn", "onnxruntime", "qnnpack", "torch", "x86"),
    "model": ("digits-cnn", "digits-lstm"),
    "dataset": ("digits", "idx", "image-folder", "npz", "python"),
    "metric": ("f1", "mae", "top1", "top5"),
    "calibrator": ("entropy", "hfmg", "histogram", "ifmr", "minmax", "moving_average", "mse", "percentile"),
}


@pytest.fixture
def fixed_names(monkeypatch: pytest.MonkeyPatch) -> None:
    """The same names whatever is registered, so that a new plug-in changes no expected message."""
    monkeypatch.setattr(registry, "names", KNOWN.__getitem__)


def problems(text: str, *overrides: str) -> list[str]:
    """The lines of the error that a text gives; none for a good one."""
    try:
        parse(text, file="s.yaml", overrides=overrides)
    except SuiteError as error:
        return str(error).split("\n")
    return []


def test_smallest_suite_is_four_lines_with_every_default() -> None:
    """models, data and matrix are enough: every other key has a default."""
    suite = parse(SMALL)
    assert suite.matrix.modes == ("fp32", "dynamic", "static", "qat")
    assert set(suite.matrix.backends) == set(registry.BUILT_IN["backend"]) - {"fake"}
    assert (suite.matrix.threads, suite.matrix.batch_sizes) == ((1,), (1,))
    assert (suite.data.calibrate.split, suite.data.calibrate.samples, suite.data.evaluate.split) == (
        "train",
        256,
        "test",
    )
    assert (suite.measure.protocol, suite.measure.precision, suite.measure.max_seconds) == ("paired", 0.02, 30.0)
    assert (suite.gate.latency.max_regression, suite.gate.latency.min_speedup) == (0.05, None)
    assert (suite.gate.accuracy.metric, suite.gate.accuracy.margin, suite.gate.size.max_ratio) == ("top1", 1.0, None)
    assert (suite.limits.stage_seconds, suite.limits.memory_bytes) == (600.0, None)


@pytest.mark.parametrize("loader", ["CSafeLoader", "SafeLoader"])
@pytest.mark.usefixtures("fixed_names")
def test_every_problem_of_a_bad_suite_is_told_at_once(loader: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """One file with one of each mistake gives the golden text, from libyaml and from Python's parser alike."""
    monkeypatch.setattr(yaml_text, "_LOADER", getattr(yaml, loader))
    monkeypatch.chdir(HERE / "data")
    with pytest.raises(SuiteError) as caught:
        read("suites/bad.yaml")
    said = str(caught.value).replace(str(HERE / "data" / "suites"), "<folder>") + "\n"
    assert said == (HERE / "golden" / "suite_errors.txt").read_text(encoding="utf-8")


@pytest.mark.parametrize(
    ("protocol", "latency", "told"),
    [("sequential", "5 ms", 1), ("sequential", "null", 0), ("both", "5 ms", 0), ("paired", "5 ms", 0)],
)
def test_a_limit_on_latency_needs_an_interval(protocol: str, latency: str, told: int) -> None:
    """protocol sequential gives none, so that the limit is refused at its place with what to do."""
    lines = problems(f"{SMALL}measure: {{protocol: {protocol}}}\ndecide: {{max_latency: {latency}}}\n")
    assert len(lines) == told
    assert all(line.startswith("s.yaml:6:10: decide.max_latency: ") and "protocol: both" in line for line in lines)


@pytest.mark.parametrize(
    ("key", "value", "said"),
    [
        ("max_latency", "5", "expected a time with its unit, got 5; did you mean '5 ms'?"),
        ("max_latency", "0.005", "expected a time with its unit, got 0.005; did you mean '0.005 s'?"),
        ("max_latency", "-5 ms", "expected a time above 0, such as 5 ms, got '-5 ms'"),
        ("max_latency", "-5", "expected a time above 0, such as 5 ms, got -5"),
        ("max_latency", "5 h", "expected a time such as 5 ms, got '5 h'; no unit 'h'; units: s, ms, us, µs"),
        ("max_latency", "5 MS", "expected a time such as 5 ms, got '5 MS'; no unit 'MS'; did you mean 'ms'?"),
        ("max_latency", "true", "expected a time such as 5 ms, got true; units: s, ms, us, µs"),
        ("max_memory", "200", "expected an amount with its unit, got 200; did you mean '200 MB'?"),
        ("max_memory", "200000000", "expected an amount with its unit, got 200000000; did you mean '200000000 B'?"),
        ("max_memory", "200 mb", "got '200 mb'; no unit 'mb'; did you mean 'MB'?; units: B, kB, KB, MB, GB, TB, KiB"),
    ],
)
def test_an_amount_has_a_unit(key: str, value: str, said: str) -> None:
    """A bare number is a question, and every other slip names what was meant; nothing is taken for seconds in
    silence."""
    (problem,) = problems(f"{SMALL}decide: {{{key}: {value}}}\n")
    assert said in problem


@pytest.mark.parametrize(
    ("value", "size"),
    [
        *(("1 TB", 10**12), ("1 GB", 10**9), ("1 MB", 10**6), ("0.5 kB", 500), ("3KB", 3000), ("7 B", 7), ("1.2 B", 2)),
        *(("1TiB", 2**40), ("1 GiB", 2**30), ("2MiB", 2**21), ("1.5 KiB", 1536)),
    ],
)
def test_amounts_of_memory(value: str, size: int) -> None:
    """Decimal and binary units, with or without a space."""
    assert parse(f"{SMALL}decide: {{max_memory: {value}}}\n").decide.max_memory == size


@pytest.mark.parametrize(("value", "seconds"), [("2 s", 2), ("3ms", 3e-3), ("4 us", 4e-6), (".5 \u00b5s", 5e-7)])
def test_amounts_of_time(value: str, seconds: float) -> None:
    """In seconds and their thousandths."""
    assert parse(f"{SMALL}decide: {{max_latency: {value}}}\n").decide.max_latency == pytest.approx(seconds, rel=1e-12)


@pytest.mark.parametrize(
    ("value", "guess"), [("0.9", "'0.9 s'"), ("1", "'1 ms'"), ("999", "'999 ms'"), ("1000", "'1000 s'")]
)
def test_a_number_without_its_unit_is_guessed_by_its_size(value: str, guess: str) -> None:
    """Nobody means a second by 5, nor 5,000 milliseconds by 5000."""
    (problem,) = problems(f"{SMALL}decide: {{max_latency: {value}}}\n")
    assert problem.endswith(f"did you mean {guess}?")


@pytest.mark.parametrize(
    ("change", "wrong"),
    [
        (f"suite={'a' * 100}", 0),
        (f"suite={'a' * 101}", 1),
        (f"models=[{{name: {'a' * 100}, source: {{onnx: a.onnx}}}}]", 0),
        (f"models=[{{name: {'a' * 101}, source: {{onnx: a.onnx}}}}]", 1),
        (f"recipe={{name: {'a' * 60}, flow: fx}}", 0),
        (f"recipe={{name: {'a' * 61}, flow: fx}}", 1),
        ("recipe={name: file, flow: fx}", 1),
        ("recipe={name: file-2, flow: fx}", 1),
        ("recipe={name: files, flow: fx}", 0),
        ("recipe={percentile: 50}", 1),
        ("recipe={percentile: 100}", 0),
        ("decide.max_latency=0 ms", 1),
        ("measure.precision=1", 1),
        ("measure.precision=0.999", 0),
        ("matrix.batch_sizes=[1, true]", 1),
        ("quantize.qat.fp32_twin=3", 1),
        ("matrix.threads=[!a 1, !a 1]", 2),
        ("data.evaluate.split=' '", 1),
    ],
)
def test_a_value_is_taken_up_to_its_limit_and_refused_once(change: str, wrong: int) -> None:
    """Lengths of names, which become files, and the ends of ranges; 1 and true are two values, and 3 is no twin."""
    assert len(problems(f"{SMALL}".replace("matrix: {}", "matrix: {modes: [static]}"), change)) == wrong


@pytest.mark.parametrize(
    ("value", "text"),
    [
        ("x" * 58, f"'{'x' * 58}'"),
        ("x" * 59, f"'{'x' * 56}\u2026'"),
        (None, "nothing"),
        (False, "false"),
        ({}, "a mapping"),
        ((), "a list"),
        (2, "2"),
    ],
)
def test_a_value_is_shown_short_and_in_yamls_words(value: object, text: str) -> None:
    """Sixty letters fit into a message."""
    assert shown(value) == text


@pytest.mark.parametrize(("seed", "wrong"), [(-1, 1), (0, 0), (2**32 - 1, 0), (2**32, 1)])
def test_a_seed_is_what_every_generator_takes(seed: int, wrong: int) -> None:
    """Whole numbers of 32 bits, 0 among them."""
    assert len(problems(SMALL, f"data.calibrate.seed={seed}")) == wrong


def test_the_text_of_an_earlier_run_may_hold_a_number() -> None:
    """It was taken as seconds and bytes then, and the run's report still is by these limits."""
    decide = parse(f"{SMALL}decide: {{max_latency: 0.005, max_memory: 1000}}\n", stored=True).decide
    assert (decide.max_latency, decide.max_memory) == (0.005, 1000)


def test_example_of_the_style_guide() -> None:
    """The message for a wrong type and for a misspelt name reads as the style guide shows it."""
    text = "suite: s\nmodels: [digits-cnn]\ndata: {dataset: digits}\nmatrix:\n  threads: [1, two]\n"
    assert problems(text) == ["s.yaml:5:16: matrix.threads[1]: expected a whole number, got 'two'"]
    said = problems(SMALL.replace("{}", "{backends: [onnxruntme]}"))
    assert len(said) == 1
    assert said[0].startswith(
        "s.yaml:4:21: matrix.backends[0]: no backend named 'onnxruntme'; did you mean 'onnxruntime'? available: "
    )


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("", "s.yaml:1:1: the file is empty; a suite needs suite, models, data and matrix"),
        ("# only a comment\n", "s.yaml:1:1: the file is empty; a suite needs suite, models, data and matrix"),
        ("---\n", "s.yaml:1:1: the file is empty; a suite needs suite, models, data and matrix"),
        ("- a\n", "s.yaml:1:1: expected a mapping with suite, models, data and matrix, got a list"),
        ("hello", "s.yaml:1:1: expected a mapping with suite, models, data and matrix, got 'hello'"),
        (SMALL + "---\na: 1\n", "s.yaml:5:1: a second document; a suite file holds one"),
        ("suite: s\nmatrix:\n\tmodes: [fp32]\n", "s.yaml:3:1: YAML allows no tab in the indentation; use spaces"),
        ("suite: a\x00b\n", "s.yaml:1:9: YAML allows no character U+0000; remove it"),
        ("suite: s\nmodels: \ud800\n", "s.yaml:2:9: YAML allows no character U+D800; remove it"),
        (SMALL + "matrix: {}\n", "s.yaml:5:1: duplicate key 'matrix'; first given in line 4"),
        (SMALL + "gate: !!python/name:os.system\n", "s.yaml:5:7: the tag !!python/name:os.system is not allowed;"),
        (SMALL + "gate: !mine {}\n", "s.yaml:5:7: the tag !mine is not allowed; a suite holds plain YAML values"),
        (
            SMALL + "gate: &a {size: *a}\n",
            "s.yaml:5:17: the alias *a stands inside its own anchor; a suite cannot contain",
        ),
        (SMALL + "gate: *gone\n", "s.yaml:5:7: no anchor &gone above this alias"),
        (SMALL + "? [a, b]\n: 1\n", "s.yaml:5:3: expected plain text as a key"),
        (SMALL + "gate: {<<: 3}\n", "s.yaml:5:12: expected a mapping behind '<<'"),
        (SMALL + f"gate: {'[' * 40}{']' * 40}\n", "s.yaml:5:38: nested deeper than 32 levels"),
        (SMALL + "#" * 2**20, "s.yaml:1:1: larger than 1 MiB; a suite is a few lines of YAML"),
        (SMALL + "gate: [" + "1," * 100_001 + "]", "s.yaml:5:"),
    ],
)
def test_unreadable_yaml_is_refused_at_its_place(text: str, said: str) -> None:
    """Broken, unsafe, deep and large texts each give a message with a place, never an exception of the parser."""
    assert problems(text)[0].startswith(said)


@pytest.mark.parametrize("text", [SMALL + "gate: " + "[" * 100_000, SMALL + "gate: " + "{a: " * 90_000, "- " * 90_000])
def test_what_is_nested_beyond_the_parsers_own_limit_says_the_same(text: str) -> None:
    """libyaml 0.2.6 reads ahead and has a limit of its own: the message is that of 32 levels, in the same line."""
    (problem,) = problems(text)
    assert problem.startswith(("s.yaml:5:", "s.yaml:1:"))
    assert problem.endswith(": nested deeper than 32 levels")


@pytest.mark.parametrize(
    "line",
    [
        "gate: *gone",
        "gate: !mine {}",
        "gate: &a {size: *a}",
        "gate: {<<: 3}",
        "data: *gone",
        "matrix: {threads: *gone}",
    ],
)
def test_a_value_that_is_refused_is_refused_once(line: str) -> None:
    """What it should have been is not asked beside it."""
    kept = [each for each in SMALL.splitlines() if each.partition(":")[0] != line.partition(":")[0]]
    said = problems("\n".join([*kept, line, ""]))
    assert len(said) == 1
    assert said[0].startswith(f"s.yaml:{len(kept) + 1}:")


def test_broken_yaml_keeps_the_parsers_place() -> None:
    """A syntax error stands where the parser met it."""
    (said,) = problems("suite: s\nmodels: [a, b\n")
    assert said.startswith("s.yaml:3:1: not valid YAML: ")


def test_billion_laughs_is_refused_before_it_is_expanded() -> None:
    """Aliases of aliases are counted, not built: a few lines cannot ask for a billion values."""
    lines = ["a0: &a0 [x]"] + [f"a{i}: &a{i} [{', '.join([f'*a{i - 1}'] * 10)}]" for i in range(1, 12)]
    assert problems(SMALL + "\n".join(lines)) == ["s.yaml:10:30: more than 100,000 values once every alias is expanded"]


def test_anchors_and_merge_keys_work() -> None:
    """A suite may share a value by an anchor, and take over a mapping by ``<<``; its own keys win."""
    text = (
        SMALL + "quantize:\n  static: &s {per_channel: true, skip_layers: [fc]}\n  qat: {<<: *s, per_channel: false}\n"
    )
    suite = parse(text)
    assert suite.quantize.qat.skip_layers == ("fc",)
    assert (suite.quantize.static.per_channel, suite.quantize.qat.per_channel) == (True, False)


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("1e-3", 1e-3),
        ("5", 5),
        ("-.5", -0.5),
        ("+.inf", float("inf")),
        ("true", True),
        ("~", None),
        ("", None),
        ("yes", "yes"),
        ("1_000", "1_000"),
        ("1:30", "1:30"),
        ("0x10", "0x10"),
        ("2026-01-01", "2026-01-01"),
        ("9" * 5000, "9" * 5000),
    ],
)
def test_scalars_mean_what_editors_take_them_for(text: str, value: object) -> None:
    """Unquoted values follow YAML 1.2's core schema, the one that schema-aware editors use."""
    scalar = yaml_text.scalar(text)
    assert (type(scalar), scalar) == (type(value), value)


@pytest.mark.parametrize(("text", "value"), [("2%", 0.02), ("5 %", 0.05), ("' 2.5% '", 0.025), ("0.02", 0.02)])
def test_shares_are_percent_or_fractions(text: str, value: float) -> None:
    """A share is written 2% or 0.02."""
    assert parse(SMALL + f"measure: {{precision: {text}}}").measure.precision == pytest.approx(value)


@pytest.mark.parametrize(
    ("key", "value", "said"),
    [
        ("measure.precision", "2", "expected a share below 100% (1.0), got 2; did you mean 2%?"),
        ("measure.precision", "0%", "expected a share above 0, got '0%'"),
        ("measure.precision", "true", "expected a share such as 2% or 0.02, got true"),
        ("measure.precision", ".nan", "expected a share such as 2% or 0.02, got nan"),
        ("measure.precision", "2 percent", "expected a share such as 2% or 0.02, got '2 percent'"),
        ("gate.latency.max_regression", "-0.1", "expected a share of at least 0, got -0.1"),
        ("gate.latency.max_regression", "500%", "expected a share below 100% (1.0), got '500%'"),
    ],
)
def test_shares_out_of_range_are_refused(key: str, value: str, said: str) -> None:
    """A share that was meant as percent, is not finite or not a number says so."""
    assert problems(SMALL, f"{key}={value}") == [f"--set {key}: {key}: {said}"]


def test_a_ratio_may_exceed_one_and_a_regression_may_be_zero() -> None:
    """A size ratio above 1 and a regression of 0 % have a meaning."""
    suite = parse(SMALL, overrides=["gate.size.max_ratio=120%", "gate.latency.max_regression=0"])
    assert (suite.gate.size.max_ratio, suite.gate.latency.max_regression) == (1.2, 0.0)


def test_overrides_are_applied_before_validation() -> None:
    """--set replaces, adds and reaches into lists; its values are YAML."""
    suite = parse(
        SMALL,
        overrides=[
            "measure.protocol=sequential",
            "matrix.threads=[1,2]",
            "models[0]={name: digits-lstm}",
            "quantize.static.backends.fbgemm.per_channel=false",
            " gate.accuracy.margin = 2 ",
        ],
    )
    assert (suite.measure.protocol, suite.matrix.threads, suite.models[0].name) == ("sequential", (1, 2), "digits-lstm")
    assert (suite.quantize.static.backends["fbgemm"].per_channel, suite.gate.accuracy.margin) == (False, 2.0)
    assert suite.overrides[0] == "measure.protocol=sequential"


def test_an_override_can_mend_the_file() -> None:
    """What is overridden is not checked as the file has it."""
    assert problems(SMALL.replace("{}", "{threads: two}"), "matrix.threads=[1]") == []


@pytest.mark.parametrize(
    ("override", "said"),
    [
        ("matrix.threads=[two]", "--set matrix.threads: matrix.threads[0]: expected a whole number, got 'two'"),
        (
            "quantize.static.adaround=true",
            "--set quantize.static.adaround: quantize.static: unknown key 'adaround'; it is a key of `recipe:`;",
        ),
        ("measure.protocl=paired", "--set measure.protocl: measure: unknown key 'protocl'; did you mean 'protocol'?"),
        ("models[3]=x", "--set models[3]: models has no item [3]; it has 1"),
        ("models[1]=x", "--set models[1]: models has no item [1]; it has 1"),
        ("gate={size: {}, size: {}}", "--set gate: duplicate key 'size'"),
        ("models[0].weights=x", "--set models[0].weights: models[0] is 'digits-cnn', not a mapping"),
        ("data[0]=x", "--set data[0]: data is a mapping, not a list"),
        ("nonsense", "--set nonsense: expected KEY=VALUE, such as "),
        ("=3", "--set : expected KEY=VALUE, such as "),
        ("a..b=3", "--set a..b: expected KEY=VALUE, such as "),
        ("matrix.threads=[1", "--set matrix.threads: not valid YAML: "),
        ("gate=!!python/name:os.system", "--set gate: the tag !!python/name:os.system is not allowed;"),
    ],
)
def test_problems_of_overrides_name_the_option(override: str, said: str) -> None:
    """A wrong override is reported as ``--set KEY``, not at a line of the file."""
    assert problems(SMALL, override)[0].startswith(said)


@pytest.mark.parametrize(
    ("override", "said"),
    [
        ("matrix.backends=[ort]", "no backend named 'ort'; did you mean 'onnxruntime'? available: "),
        ("matrix.modes=[int8]", "'static' or 'qat', got 'int8'; did you mean 'static'?"),
        ("matrix.modes=[bfloat16]", "got 'bfloat16'; did you mean 'bf16'?"),
        ("gate.accuracy.metric=acc", "no metric named 'acc'; did you mean 'top1'? available: "),
        ("gate.acc.margin=1", "gate: unknown key 'acc'; did you mean 'accuracy'? available: "),
        ("gate.accuracy.margin=1%", "got '1%'; write 1: percentage points for a metric in percent"),
        ("quantize.qat.learning_rate=1%", "expected a number, got '1%'; write 1: no % here"),
        ("measure.max_seconds=5s", "expected a number, got '5s'; write 5: the key is in seconds"),
        ("measure.max_seconds=500 ms", "expected a number, got '500 ms'; write 0.5: the key is in seconds"),
        ("limits.stage_seconds=2 min", "expected a number, got '2 min'; write 120: the key is in seconds"),
    ],
)
def test_another_word_or_a_unit_too_many_is_told_what_to_write(override: str, said: str) -> None:
    """Words that no spelling leads to (ort, int8, acc) have a suggestion, and so has a number with a unit."""
    (message,) = problems(SMALL, override)
    assert said in message


def test_an_override_below_an_alias_leaves_the_other_use_alone() -> None:
    """Setting a key of a shared mapping changes it at that path only."""
    text = SMALL + "quantize:\n  static: &s {per_channel: true}\n  dynamic: *s\n"
    suite = parse(text, overrides=["quantize.dynamic.per_channel=false"])
    assert (suite.quantize.static.per_channel, suite.quantize.dynamic.per_channel) == (True, False)


@pytest.mark.parametrize(
    ("data", "said"),
    [
        ("{dataset: digit}", "data.dataset: no dataset named 'digit'; did you mean 'digits'? available: "),
        ("{dataset: npz}", "data.dataset: 'npz' needs a path; write {npz: path}"),
        ("{dataset: {npz: }}", "data.dataset.npz: expected a path, got nothing"),
        ("{dataset: {npz: a, idx: b}}", "data.dataset: expected one data set, got npz and idx"),
        ("{dataset: {image_folder: a}}", "data.dataset: none of the keys is a data set; did you mean 'image-folder'?"),
        ("{dataset: {python: file.py}}", "data.dataset.python: expected file.py:function, got 'file.py'"),
        ("{dataset: 3}", "data.dataset: expected a data set's name or a mapping such as {npz: file.npz}, got 3"),
        ("{dataset: digits, evaluate: {split: train}}", "data.evaluate.split: calibration and evaluation both take"),
        ("{dataset: digits, calibrate: {split: test}}", "data.calibrate.split: calibration and evaluation both take"),
        (
            "{dataset: digits, calibrate: {samples: 0}}",
            "data.calibrate.samples: expected a number of at least 1, got 0",
        ),
    ],
)
@pytest.mark.usefixtures("fixed_names")
def test_data_problems(data: str, said: str) -> None:
    """A data set without its path or under a wrong name, and splits that overlap, are told before anything runs."""
    (message,) = problems(SMALL.replace("{dataset: digits}", data))
    assert message.split(": ", 1)[1].startswith(said)


def test_data_set_parts() -> None:
    """A data set is its loader's name, what stands behind it, and the other keys."""
    spec = parse(SMALL.replace("{dataset: digits}", "{dataset: {image-folder: pets, size: 32}}")).data
    assert (spec.loader, spec.value, spec.options) == ("image-folder", "pets", {"size": 32})
    plain = parse(SMALL).data
    assert (plain.loader, plain.value, plain.options) == ("digits", None, {})


def test_names_of_baselines_are_kept_free() -> None:
    """A suite cannot be called as the folder in which committed baselines live."""
    (said,) = problems(SMALL.replace("small", "baselines"))
    assert said.startswith("s.yaml:1:8: suite: the name is taken")


def test_recipes_follow_mode_then_backend() -> None:
    """A recipe is the mode's keys with those that the suite gives for the backend; fp32 has none."""
    text = SMALL + "quantize: {static: {skip_layers: [fc], backends: {fbgemm: {calibrator: minmax}}}, qat: {epochs: 3}}"
    quantize = parse(text).quantize
    assert quantize.recipe("fp32", "torch") == Recipe()
    assert quantize.recipe("dynamic", "x86") == Recipe(min_coverage=0.01, target=None)
    shared = {"percentile": 99.99, "min_coverage": 0.5, "skip_layers": ("fc",), "target": None}
    assert quantize.recipe("static", "x86") == Recipe(**shared)
    assert quantize.recipe("static", "fbgemm") == Recipe(calibrator="minmax", **shared)
    trained = {"epochs": 3, "learning_rate": 1e-3, "batch_size": 64, "seed": 0, "schedule": "cosine"}
    assert quantize.recipe("qat", "x86") == Recipe(min_coverage=0.5, target=None, **trained)


def test_canonicalize_holds_for_every_mode() -> None:
    """`quantize: {canonicalize: false}` turns the rewriting off, whatever the mode."""
    quantize = parse(SMALL + "quantize: {canonicalize: false}").quantize
    assert {quantize.recipe(mode, "x86").canonicalize for mode in ("dynamic", "static", "qat")} == {False}


def test_place_is_the_line_of_the_key_or_of_its_nearest_given_ancestor() -> None:
    """A gate row can name the line that demands it."""
    text = SMALL + "gate:\n  accuracy:\n    margin: 2\n"
    suite = parse(text, file="s.yaml", overrides=["measure.seed=3"])
    assert suite.place("gate.accuracy.margin") == "s.yaml:7"
    assert suite.place("gate.accuracy.metric") == "s.yaml:6"
    assert suite.place("gate.size.max_ratio") == "s.yaml:5"
    assert suite.place("limits.stage_seconds") == "s.yaml:1"
    assert suite.place("measure.seed") == "--set measure.seed"


def test_references_are_absolute_and_start_at_the_suites_folder(tmp_path: Path) -> None:
    """Paths in a suite are relative to the suite's own file, wherever the process stands."""
    for name in ("net.py", "net.safetensors", "net.onnx"):
        (tmp_path / name).write_text("def build(width): ...\n" if name == "net.py" else "")
    models = (
        "[digits-cnn, {name: mine, source: {python: 'net.py:build', args: {width: 3}}, weights: net.safetensors}, "
        "{name: other, source: {onnx: ./net.onnx}}]"
    )
    file = tmp_path / "s.yaml"
    file.write_text(SMALL.replace("[digits-cnn]", models), encoding="utf-8")
    suite = read(os.path.relpath(file))
    built_in, mine, other = suite.references()
    assert (built_in.source, built_in.path) == (None, None)
    assert (mine.source, mine.path, mine.attribute) == ("python", tmp_path / "net.py", "build")
    assert (dict(mine.args), mine.weights, mine.kind) == ({"width": 3}, tmp_path / "net.safetensors", "torch")
    assert (other.path, other.kind, suite.base) == (tmp_path / "net.onnx", "onnx", tmp_path)


def test_missing_files_are_named_with_where_they_were_sought(tmp_path: Path) -> None:
    """For a suite on disk, the files that it names must be there; a text alone is not checked against the disk."""
    text = SMALL.replace("{dataset: digits}", "{dataset: {npz: gone.npz}}")
    assert problems(text) == []
    file = tmp_path / "s.yaml"
    file.write_text(text, encoding="utf-8")
    with pytest.raises(SuiteError) as caught:
        read(file)
    assert str(caught.value) == (
        f"{file}:3:23: data.dataset.npz: no such file or folder: {tmp_path / 'gone.npz'}; "
        "paths start at the suite's own folder"
    )


def test_a_suite_that_cannot_be_read_names_its_neighbours(tmp_path: Path) -> None:
    """A wrong path is a usage error that lists the suites beside it."""
    (tmp_path / "real.yaml").write_text(SMALL, encoding="utf-8")
    for path in (tmp_path / "reel.yaml", tmp_path):
        with pytest.raises(UsageError) as caught:
            read(path)
        assert str(tmp_path / "real.yaml") in str(caught.value)
        assert not isinstance(caught.value, SuiteError)


@pytest.mark.parametrize(("there", "asked"), [("s.yaml", "s.yml"), ("s.yml", "s.yaml"), ("s.yaml", "s")])
def test_a_suite_of_another_ending_is_suggested(tmp_path: Path, there: str, asked: str) -> None:
    """Where only the ending is wrong, one file is meant, whatever else lies there."""
    (tmp_path / there).write_text(SMALL, encoding="utf-8")
    (tmp_path / "other.yaml").write_text(SMALL, encoding="utf-8")
    with pytest.raises(UsageError, match=rf"did you mean {tmp_path / there}\?$"):
        read(tmp_path / asked)


def test_files_that_are_not_utf8_or_too_large_are_refused(tmp_path: Path) -> None:
    """Bytes are looked at before YAML is; a byte-order mark is fine."""
    file = tmp_path / "s.yaml"
    file.write_bytes(b"suite: s\nmodels: [\xff]\n")
    with pytest.raises(SuiteError, match=r"s\.yaml:2:10: not UTF-8"):
        read(file)
    file.write_bytes(SMALL.encode() + b"#" * 2**20)
    with pytest.raises(SuiteError, match=r"s\.yaml:1:1: larger than 1 MiB"):
        read(file)
    file.write_bytes(b"\xef\xbb\xbf" + SMALL.encode())
    assert read(file).suite == "small"


@given(st.text() | st.lists(st.sampled_from([*"[]{}:,&*!|>-?#%@'\"\n\t ", "a", "1", "<<", "suite"])).map("".join))
def test_no_text_makes_the_reader_crash(text: str) -> None:
    """Whatever the text, the result is a suite or a SuiteError."""
    problems(text)
    problems(SMALL + text)
    problems(SMALL, f"gate={text}", text)


values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=5),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=5), inner, max_size=3),
    max_leaves=8,
)
KEYS = """
suite models models[0] data data.dataset data.calibrate matrix matrix.modes matrix.backends matrix.threads
matrix.include matrix.exclude quantize quantize.static quantize.qat.backends measure measure.precision gate
gate.size gate.accuracy.metric limits limits.memory_bytes
"""
keys = st.sampled_from(KEYS.split())


@given(keys, values)
def test_no_value_makes_validation_crash(key: str, value: object) -> None:
    """Whatever stands behind a key, the result is a suite or problems in plain words, without pydantic's own."""
    said = problems(SMALL, f"{key}={json.dumps(value)}")
    assert not [line for line in said if "Input should" in line or "Value error" in line]


@given(st.lists(st.text(st.characters(categories=["L", "N"]), min_size=1) | st.integers(0, 999), min_size=1))
def test_path_text_and_path_of_are_inverse(path: list[str | int]) -> None:
    """A path in words leads back to the path."""
    path = ["root", *path]
    assert yaml_text.path_of(yaml_text.path_text(tuple(path))) == tuple(path)


def test_a_suite_cannot_change_and_travels_between_processes() -> None:
    """A suite is frozen, and pickles with the places of its keys."""
    suite = parse(SMALL, file="s.yaml")
    with pytest.raises(ValueError, match="frozen"):
        suite.suite = "other"  # type: ignore[misc]
    again = pickle.loads(pickle.dumps(suite))
    assert (again, again.place("matrix")) == (suite, "s.yaml:4")


def test_schema_file_is_what_the_models_say() -> None:
    """suites/schema.json is the output of `qbench schema`."""
    expected = json.dumps(json_schema(), indent=2, ensure_ascii=False) + "\n"
    written = (SUITES / "schema.json").read_text(encoding="utf-8")
    assert written == expected, "run `qbench schema > suites/schema.json`"


def test_every_key_of_the_schema_is_described_and_has_its_default() -> None:
    """An editor can explain every key; a key that is not required has a default."""
    schema = json_schema()
    sections = {"Suite": schema, **schema["$defs"]}
    for name, section in sections.items():
        for key, value in section["properties"].items():
            target = sections[value["$ref"].rpartition("/")[2]] if "$ref" in value else {}
            assert value.get("description") or target.get("description"), f"{name}.{key}"
            assert ("default" in value) != (key in section.get("required", ())), f"{name}.{key}"
        assert section["additionalProperties"] is False, name
    assert schema["required"] == ["suite", "models", "data", "matrix"]


def test_schema_offers_built_in_names_and_allows_others() -> None:
    """Names that other packages register are as good as built-ins."""
    items = json_schema()["$defs"]["Matrix"]["properties"]["backends"]["items"]
    assert items == {"anyOf": [{"enum": sorted(registry.BUILT_IN["backend"])}, {"type": "string"}]}


@pytest.mark.parametrize("file", sorted(SUITES.glob("*.yaml")), ids=lambda file: file.stem)
def test_suites_of_the_repository_are_valid_and_point_at_the_schema(file: Path) -> None:
    """Every suite in suites/ parses, is named as its file, and tells editors where the schema is."""
    suite: Suite = read(file)
    assert suite.suite == file.stem
    assert suite.text.startswith("# yaml-language-server: $schema=./schema.json\n")


def test_reading_a_suite_imports_no_heavy_library() -> None:
    """`qbench plan` is instant because a suite is read with pydantic and yaml alone."""
    code = "import sys, qbench.suite, qbench.plan; print([m for m in sys.argv[1:] if m in sys.modules])"
    heavy = ["torch", "onnxruntime", "onnx", "numpy", "pandas", "matplotlib", "scipy", "sklearn"]
    done = subprocess.run([sys.executable, "-c", code, *heavy], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"


def test_the_stored_text_of_a_run_is_read_where_its_files_are_not(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A run is judged and reported in a checkout that has its suite but not its weights or data."""
    monkeypatch.chdir(tmp_path)
    content = (
        "suite: s\nmodels: [{name: m, source: {onnx: gone.onnx}}]\ndata: {dataset: {python: 'gone.py:load'}}\n"
        "matrix: {modes: [fp32], backends: [onnxruntime]}\ngate: {accuracy: {metric: top1, margin: 3}}\n"
    )
    Path("s.yaml").write_text(content)
    with pytest.raises(SuiteError, match=r"no such file or folder: .*gone\.onnx"):
        parse(content, file="s.yaml")
    assert parse(content, file="s.yaml", stored=True).gate.accuracy.margin == 3


@pytest.mark.parametrize(
    ("matrix", "wrong"),
    [
        ("{modes: [fp32, static]}", True),
        ("{modes: [fp32, qat]}", False),
        ("{}", False),
        ("{modes: [fp32], include: [{mode: qat, backend: onednn}]}", False),
    ],
)
def test_a_twin_needs_a_qat(matrix: str, wrong: bool) -> None:
    """`fp32_twin` without a mode qat is named at its place, since no training is there whose twin could be made."""
    text = f"suite: s\nmodels: [digits-cnn]\ndata: {{dataset: digits}}\nmatrix: {matrix}\n"
    said = problems(text + "quantize:\n  qat: {fp32_twin: true}\n")
    expected = "s.yaml:6:20: quantize.qat.fp32_twin: a twin is the fp32 network with the training of a qat variant"
    assert [line.startswith(expected) for line in said] == ([True] if wrong else [])
    assert problems(text + "quantize:\n  qat: {fp32_twin: false}\n") == []


def test_a_path_without_a_name_is_a_folder(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """The root and the working folder have no ending that could be another; they are told as any folder is."""
    monkeypatch.chdir(tmp_path)
    for path in ("/", "."):
        with pytest.raises(UsageError, match=f"^{path}: cannot read the suite: Is a directory"):
            read(path)


def test_suites_are_suggested_where_there_are_some(tmp_path: Path) -> None:
    """A folder without any is no suggestion, nor half of a sentence."""
    (tmp_path / "empty").mkdir()
    (tmp_path / "full").mkdir()
    (tmp_path / "full/b.yml").touch()
    (tmp_path / "full/a.yaml").touch()
    said = {}
    for path in ("empty", "empty/x.yaml", "full", "full/x.yaml"):
        with pytest.raises(UsageError) as raised:
            read(tmp_path / path)
        said[path] = str(raised.value)
    full = f"{tmp_path}/full/a.yaml, {tmp_path}/full/b.yml"
    assert {path: text.partition(": cannot read the suite: ")[2] for path, text in said.items()} == {
        "empty": "Is a directory",
        "empty/x.yaml": "No such file or directory",
        "full": f"Is a directory; name a file in it: {full}",
        "full/x.yaml": f"No such file or directory; there are: {full}",
    }


@pytest.mark.parametrize(
    ("value", "key", "hint"),
    [
        ("1%", "margin", "; write 1: percentage points for a metric in percent"),
        ("0.5 %", "at_least", "; write 0.5: percentage points for a metric in percent"),
        ("1%", "epochs", "; write 1: no % here"),
        ("5 ms", "max_seconds", "; write 0.005: the key is in seconds"),
        ("5 us", "max_seconds", "; write 5e-06: the key is in seconds"),
        ("3 s", "max_seconds", "; write 3: the key is in seconds"),
        ("3 sec", "max_seconds", "; write 3: the key is in seconds"),
        ("3 second", "max_seconds", "; write 3: the key is in seconds"),
        ("3 seconds", "max_seconds", "; write 3: the key is in seconds"),
        ("2m", "stage_seconds", "; write 120: the key is in seconds"),
        ("2 min", "stage_seconds", "; write 120: the key is in seconds"),
        ("2 minutes", "stage_seconds", "; write 120: the key is in seconds"),
        ("1.5h", "stage_seconds", "; write 5400: the key is in seconds"),
        ("3 days", "stage_seconds", ""),
        ("3 s", "margin", ""),
        ("three", "max_seconds", ""),
    ],
)
def test_a_number_with_a_unit_is_told_as_one_without(value, key, hint):
    """Where the key has a unit of its own; nothing is guessed of any other text."""
    assert messages._drop_unit(value, key) == hint


@pytest.mark.parametrize(
    ("value", "hint"),
    [
        ("suite=3", "expected text, got 3; write '3' in quotes if it is meant as text"),
        ("suite=true", "expected text, got true; write 'true' in quotes if it is meant as text"),
        ("suite=[a]", "expected text, got a list"),
        ("suite=", "expected text, got nothing; leave the key out for its default"),
        ("measure.protocol=3", "expected 'paired', 'sequential' or 'both', got 3"),
        ("measure.calls=[3]", "expected a whole number, got a list"),
        ("measure.calls=", "expected a whole number, got nothing; leave the key out for its default"),
        ("models=[]", "expected at least one item, got an empty list"),
        ("quantize.adaround=true", "unknown key 'adaround'; it is a key of `recipe:`; available: "),
        ("measure.adaround=true", "unknown key 'adaround'; available: "),
        ("quantize.qat.backends.x86.epoch=1", "quantize.qat.backends.x86: unknown key 'epoch'; did you mean 'epochs'?"),
        ("models=[{nmae: a}]", "models[0]: unknown key 'nmae'; did you mean 'name'?"),
    ],
)
def test_a_value_of_another_kind_is_told_with_what_to_write(value: str, hint: str) -> None:
    """Where something is to be said; a hint that is none is left out."""
    said = problems(SMALL, value)
    assert any(line.endswith(hint) or (hint.endswith(("?", ": ")) and hint in line) for line in said), said


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("\ufeff" + SMALL, []),
        ("\x00" + SMALL, ["s.yaml:1:1: YAML allows no character U+0000; remove it"]),
        ("\ufeff\x00" + SMALL, ["s.yaml:1:2: YAML allows no character U+0000; remove it"]),
        (SMALL + "#" * (2**20 - len(SMALL)), []),
        (SMALL + "#" * (2**20 - len(SMALL) + 1), ["s.yaml:1:1: larger than 1 MiB; a suite is a few lines of YAML"]),
        (SMALL + "#" + "\u00e9" * 2**19, ["s.yaml:1:1: larger than 1 MiB; a suite is a few lines of YAML"]),
        (SMALL + "gate: {&a size: {}}\n", ["s.yaml:5:8: expected plain text as a key"]),
        (
            SMALL + "gate: {!mine size: {}}\n",
            ["s.yaml:5:8: expected plain text as a key", "s.yaml:5:8: the tag !mine is not allowed"],
        ),
        (SMALL + "gate: {!!str size: {}}\n", []),
        (SMALL + "gate: {'<<': 3}\n", ["s.yaml:5:8: gate: unknown key '<<'; available: "]),
        (SMALL + "gate: {<<: [{size: {}}, {memory: {}}], size: {max_ratio: 2}}\n", []),
    ],
)
def test_a_text_is_read_as_far_as_it_is_plain(text: str, said: list[str]) -> None:
    """Up to a size in bytes, whatever its letters; a mark of the byte order is none of them, nor is a merge key in
    quotes one."""
    given = problems(text)
    assert len(given) == len(said)
    assert all(line.startswith(start) for line, start in zip(given, said, strict=True))


def test_values_are_counted_up_to_the_most(monkeypatch: pytest.MonkeyPatch) -> None:
    """A list is one, and so is each of its items; what an alias stands for is counted each time."""
    for most, text in ((5, "[1, 1, 1, 1]"), (5, "{a: 1, b: [1, 1]}"), (8, "[&a [1, 1], *a, 1]")):
        monkeypatch.setattr(yaml_text, "MAX_NODES", most)
        yaml_text.read_value(text, file="f")
        monkeypatch.setattr(yaml_text, "MAX_NODES", most - 1)
        with pytest.raises(SuiteError, match="values once every alias is expanded"):
            yaml_text.read_value(text, file="f")


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("! 3", "3"),
        ("!!str 3", "3"),
        ("'3'", "3"),
        ("3", 3),
        ("!!int 3", 3),
        ("", None),
        ("[1, '1', ~]", [1, "1", None]),
    ],
)
def test_a_value_in_quotes_or_tagged_as_text_is_text(text: str, value: object) -> None:
    """Any other means what it says."""
    node, said = yaml_text.read_value(text, file="f")
    assert (node.plain(), said) == (value, [])
    assert str(node.mark) == "f"


def test_a_suite_that_is_made_by_hand_is_no_quick_look_and_may_have_labels() -> None:
    """It stands in no file."""
    suite = Suite.model_validate({"suite": "s", "models": ["digits-cnn"], "data": {"dataset": "digits"}, "matrix": {}})
    assert (suite.quick, suite.labelled, suite.file, suite.overrides) == (False, True, "<text>", ())
