"""The key ``recipe``: names, keys with several values, and what is refused, each at its place."""

from __future__ import annotations

import pytest

from qbench.errors import SuiteError
from qbench.plan.planner import make_plan
from qbench.quant.recipe import Recipe
from qbench.suite import parse

X86_CODE = "its package holds machine code for x86_64, which no other kind of CPU loads"
MATRIX = "matrix: {modes: [fp32, static], backends: [onednn]}\n"
BASE = "suite: s\nmodels: [digits-cnn]\ndata: {dataset: digits}\n"


def suite(recipe, *, modes="[fp32, static]", backends="[torch, onednn]", more=""):
    matrix = f"matrix: {{modes: {modes}, backends: {backends}{more}}}\n"
    return parse(f"{BASE}{matrix}recipe: {recipe}\n")


def plan(read):
    return make_plan(read, cores=2)


def ids(read):
    return [planned.case.id for planned in plan(read).cases]


def names(recipe):
    return [choice.name for choice in suite(recipe).recipe]


def test_without_the_key_there_is_the_default_recipe_and_ids_are_plain():
    """A case's id names a recipe only where it is not the default."""
    read = parse(f"{BASE}matrix: {{modes: [fp32, static], backends: [onednn]}}\n")
    assert ids(read) == ["digits-cnn/fp32/torch/t1/b1", "digits-cnn/static/onednn/t1/b1"]


def test_a_key_with_several_values_gives_one_recipe_each():
    """`{flow: [eager, fx]}` compares the two flows, side by side against one fp32."""
    read = suite("{flow: [eager, fx]}")
    assert ids(read) == [
        "digits-cnn/fp32/torch/t1/b1",
        "digits-cnn/static@eager/onednn/t1/b1",
        "digits-cnn/static@fx/onednn/t1/b1",
    ]
    assert [planned.case.variant.recipe.flow for planned in plan(read).cases] == [None, "eager", "fx"]
    assert [planned.case.key.recipe for planned in plan(read).cases] == ["default", "eager", "fx"]


@pytest.mark.parametrize(
    ("recipe", "expected"),
    [
        ("framework-default", ["framework-default"]),
        ("[default, framework-default]", ["default", "framework-default"]),
        ("[default, {calibrator: [minmax, percentile], reduce_range: false}]",
         ["default", "minmax+no-reduce_range", "percentile+no-reduce_range"]),
        ("[framework-default, framework-default+float_joins]", ["framework-default", "framework-default+float_joins"]),
        ("{name: mine, skip_layers: [fc, block.*]}", ["mine"]),
        ("{name: mine, calibrator: [minmax, mse], clip_ranges: false}", ["mine+minmax", "mine+mse"]),
        ("{skip_layers: [fc, block.*]}", ["skip-fc-block.x"]),
        ("{percentile: [99.9, 99.99]}", ["percentile-99.9", "percentile-99.99"]),
        ("{canonicalize: [true, false]}", ["canonicalize", "no-canonicalize"]),
        ("{balance: [0.5, 0.75], adaround: true}", ["balance-0.5+adaround", "balance-0.75+adaround"]),
    ],
)  # fmt: skip
def test_recipes_are_called_by_what_they_set(recipe, expected):
    """A recipe without a name is called by its values; several keys with several values give every combination."""
    assert names(recipe) == expected


@pytest.mark.parametrize(
    ("recipe", "fx", "dynamic", "weights"),
    [
        ("{balance: 0.5, adaround: true}", ("balance", "adaround"), ("balance", "adaround"), ()),
        ("{balance: 0.5, adaround: false}", ("balance",), ("balance",), ()),
        ("{bias_correction: true}", ("bias_correction",), ("bias_correction",), ()),
        ("{bias_correction: false}", (), ("bias_correction",), ()),
        ("{bits: 4, group: 32, flow: fx}", (), (), ("bits", "group")),
    ],
)
def test_a_recipe_tells_which_of_its_keys_are_for_one_mode_alone(recipe, fx, dynamic, weights):
    """Of static quantization to ONNX all but one that is switched off, which is for any; that biases stay is for static
    quantization by torch, too."""
    (choice,) = suite(recipe, modes="[fp32]").recipe
    assert (choice.find_unfit("static", ("fx",)), choice.of_weights) == (fx, weights)
    assert choice.find_unfit("static", ("onnx",)) == ()
    assert choice.find_unfit("dynamic", ("onnx",)) == dynamic


def test_a_name_made_of_values_is_cut_to_what_a_name_may_have():
    """Sixty letters."""
    layers = ", ".join(f"layer{number}" for number in range(20))
    (name,) = names(f"{{skip_layers: [{layers}]}}")
    assert name == "skip-layer0-layer1-layer2-layer3-layer4-layer5-layer6-layer7"[:60]
    assert len(name) == 60


def test_a_recipe_sets_only_its_own_keys():
    """What a recipe leaves out stays as `quantize` has it."""
    read = suite("{calibrator: minmax}")
    base = Recipe(calibrator="histogram", per_channel=True, skip_layers=("fc",))
    assert read.recipe[0].over(base) == Recipe(
        name="minmax", calibrator="minmax", per_channel=True, skip_layers=("fc",)
    )


def test_a_networks_own_qconfig_is_for_the_torch_engines():
    """Elsewhere the recipe is no case, and a note says why and what to do; the ranges of `quantize` do not mix in."""
    read = suite(
        "[default, {qconfig: own, name: own-qconfig, flow: [fx]}]",
        modes="[static]",
        backends="[x86, inductor, onnxruntime]",
    )
    planned = plan(read)
    own = [case.case for case in planned.cases if case.case.variant.recipe.qconfig]
    assert [(case.id, case.variant.recipe.calibrator) for case in own] == [
        ("digits-cnn/static@own-qconfig/x86/t1/b1", None)
    ]
    said = " ".join(planned.notes)
    for backend in ("inductor", "onnxruntime"):
        assert (
            f"{backend}: static with the recipe own-qconfig is no case: it cannot read the network's own qconfig"
            in said
        )


def test_what_static_onnx_alone_does_is_no_case_elsewhere():
    """Balance, AdaRound and bias correction are for static variants of ONNX Runtime and OpenVINO: elsewhere the recipe
    is no case, and a note names the key; one that is switched off is the default, unless the default has some of it, as
    bias correction, in torch's static variants, too."""
    read = suite(
        "[default, {balance: 0.5, bias_correction: true, name: smooth}, {adaround: [true, false]}, "
        "{bias_correction: false, name: plain}]",
        modes="[dynamic, static]",
        backends="[x86, onnxruntime]",
    )
    planned = plan(read)
    cases = [case.case for case in planned.cases]
    assert [
        case.id for case in cases if case.variant.recipe.name in ("smooth", "adaround", "no-adaround", "plain")
    ] == [
        "digits-cnn/static@plain/x86/t1/b1",
        "digits-cnn/static@smooth/onnxruntime/t1/b1",
        "digits-cnn/static@adaround/onnxruntime/t1/b1",
        "digits-cnn/static@plain/onnxruntime/t1/b1",
    ]
    plain, _ = (case.variant.recipe for case in cases if case.variant.recipe.name == "plain")
    assert plain.bias_correction is False  # what is left out corrects what rounded weights do
    said = " ".join(planned.notes)
    why = "balance and bias_correction are for static on onnxruntime and openvino alone"
    for modes in ("x86: dynamic, static", "onnxruntime: dynamic"):
        assert f"{modes} with the recipe smooth is no case: {why}" in said, said
    assert "adaround is for static on onnxruntime and openvino alone" in said
    assert "static with the recipe no-adaround is no case: it is the same as default" in said


def test_framework_default_rewrites_and_clips_nothing():
    """The framework's own recipe is taken as the framework has it."""
    recipe = suite("framework-default").recipe[0].over(Recipe())
    assert (recipe.framework_default, recipe.canonicalize, recipe.clip_ranges) == (True, False, False)


@pytest.mark.parametrize(
    ("recipe", "floats"),
    [("default", True), ("framework-default", False), ("framework-default+float_joins", True)],
)
def test_joins_of_unlike_ranges_are_float_but_where_a_framework_is_left_alone(recipe, floats):
    """In a recipe of qbench's they always are."""
    own_recipe = suite(recipe).recipe[0].over(Recipe())
    assert own_recipe.joins_in_float is floats
    assert own_recipe.framework_default is recipe.startswith("framework-default")


@pytest.mark.parametrize(
    ("recipe", "place", "said"),
    [
        ("framework-defualt", "5:9: recipe: no recipe named 'framework-defualt'", "did you mean 'framework-default'?"),
        ("[default, default]", "5:19: recipe[1]: two recipes are called 'default'", "name of its own"),
        ("{flwo: fx}", "recipe", "unknown key 'flwo'; did you mean 'flow'?"),
        (
            "{flow: [fx, egaer]}",
            "5:21: recipe.flow[1]: expected 'auto', 'eager', 'fx', 'pt2e' or 'onnx', got 'egaer'",
            "did you mean 'eager'?",
        ),
        ("{percentile: 30}", "recipe.percentile", "50"),
        ("{balance: 1.5}", "5:19: recipe.balance", "got 1.5"),
        ("{adaround: often}", "5:20: recipe.adaround", "often"),
        ("{name: default, flow: fx}", "recipe.name", "a short name"),
        ("{name: mine}", "recipe", "give it keys"),
        ("[]", "5:9: recipe", "at least one recipe"),
        ("{flow: []}", "recipe.flow", "at least one value"),
        ("3", "recipe", "a recipe's name or its keys"),
        ("{flow: null}", "recipe.flow", "leave the key out"),
        ("{qconfig: mine}", "5:19: recipe.qconfig: expected 'own', got 'mine'", ""),
        ("{qconfig: own, calibrator: mse}", "5:36: recipe.calibrator", "own qconfig says this (qconfig: own); remove"),
    ],
)
def test_what_is_no_recipe_is_refused_at_its_place(recipe, place, said):
    """The message has the line, the path, and what would be right."""
    with pytest.raises(SuiteError) as caught:
        suite(recipe)
    assert place in str(caught.value)
    assert said in str(caught.value)


def test_a_flow_that_a_backend_lacks_is_no_case_and_said():
    """ONNX Runtime has one flow of its own: a recipe of another flow gives no case there, and a note says so."""
    read = suite("{flow: [eager, fx]}", backends="[torch, onednn, onnxruntime]")
    assert not [case for case in ids(read) if "static" in case and "onnxruntime" in case]
    notes = " ".join(plan(read).notes)
    assert "onnxruntime: static with the recipe eager is no case: its flow is onnx" in notes


def test_a_recipe_that_changes_nothing_is_no_case_and_said():
    """Dynamic quantization has no calibrator, so that two calibrators are one and the same case."""
    read = suite("{calibrator: [minmax, histogram]}", modes="[fp32, dynamic, static]")
    assert [case for case in ids(read) if "dynamic" in case] == ["digits-cnn/dynamic@minmax/onednn/t1/b1"]
    assert any("dynamic with the recipe histogram is no case: it is the same as minmax" in n for n in plan(read).notes)


def test_include_and_exclude_know_recipes():
    """Cells are taken out, and put in, by a recipe's name too."""
    read = suite("{flow: [eager, fx]}", more=", exclude: [{recipe: eager}]")
    assert [case for case in ids(read) if "static" in case] == ["digits-cnn/static@fx/onednn/t1/b1"]


@pytest.mark.parametrize(
    ("written", "read"),
    [
        ("avx2", ("avx2",)),
        ("[arm, avx2]", ("avx2", "arm")),
        ("native", ()),
        ("[native, avx2]", ("avx2",)),
    ],
)
def test_a_target_is_one_kind_of_cpu_or_several(written, read):
    """In one order, so that one set of CPUs is one artifact; this machine is always among them."""
    chosen = parse(f"{BASE}{MATRIX}quantize: {{target: {written}}}\n").quantize
    assert {chosen.recipe(mode, "onednn").target for mode in ("fp32", "dynamic", "static", "qat")} == {read}


def test_a_mode_and_a_backend_have_targets_of_their_own():
    """The backend's over the mode's over that of all; a recipe of the suite sets one over all of them."""
    quantize = "{target: avx2, static: {target: arm, backends: {onednn: {target: [vnni, arm]}}}}"
    read = parse(
        f"{BASE}{MATRIX}quantize: {quantize}\nrecipe: [default, {{target: [avx2, arm]}}, {{target: native}}]\n"
    )
    assert read.quantize.recipe("qat", "onednn").target == ("avx2",)
    assert read.quantize.recipe("static", "qnnpack").target == ("arm",)
    own = read.quantize.recipe("static", "onednn")
    assert own.target == ("vnni", "arm")
    assert [(choice.name, choice.over(own).target) for choice in read.recipe] == [
        ("default", ("vnni", "arm")),
        ("for-avx2-arm", ("avx2", "arm")),
        ("for-native", ()),
    ]


def test_the_frameworks_default_is_made_for_no_cpu():
    """It is left as the framework has it, so nothing is promised of it."""
    read = parse(f"{BASE}{MATRIX}quantize: {{target: avx2}}\nrecipe: framework-default\n")
    assert read.recipe[0].over(read.quantize.recipe("static", "onednn")).target == ()


@pytest.mark.parametrize(
    ("written", "said"),
    [
        ("avx3", "quantize.target: no kind of CPU named 'avx3'; did you mean 'avx2'. there are native, avx2, "),
        ("[avx2, 512]", r"quantize.target\[1\]: expected a kind of CPU, got 512; there are native"),
        ("[]", "quantize.target: expected at least one kind of CPU, got an empty list"),
        ("[arm, arm]", r"quantize.target\[1\]: 'arm' stands there twice"),
        ("{avx2: true}", "quantize.target: expected a kind of CPU, got a mapping"),
    ],
)
def test_what_is_no_target_is_refused_at_its_place(written, said):
    """With the kinds that there are."""
    with pytest.raises(SuiteError, match=said):
        parse(f"{BASE}{MATRIX}quantize: {{target: {written}}}\n")


def test_what_cannot_run_on_a_kind_of_cpu_is_skipped_with_the_reason():
    """An engine or machine code of x86 is nothing for ARM; fp32 of other runtimes holds no machine code."""
    matrix = "matrix: {modes: [fp32, static], backends: [torch, fbgemm, onednn, qnnpack, inductor]}\n"
    planned = plan(parse(f"{BASE}{matrix}quantize: {{target: [avx2, arm]}}\n"))
    assert {skip.key.id: skip.reason.split(";")[0] for skip in planned.skipped} == {
        "digits-cnn/static/fbgemm/t1/b1": "the engine fbgemm exists only on x86_64, so nothing it builds runs on ARM",
        "digits-cnn/fp32/inductor/t1/b1": X86_CODE,
        "digits-cnn/static/inductor/t1/b1": X86_CODE,
    }
    assert "take arm out of its target" in planned.skipped[0].reason
    assert {each.case.variant.mode: each.case.variant.recipe.target for each in planned.cases} == {
        "fp32": (),
        "static": ("avx2", "arm"),
    }
