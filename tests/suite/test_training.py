"""How QAT trains, as a suite says it: it becomes a recipe, or is refused at its place."""

from __future__ import annotations

from pathlib import Path

import pytest

from qbench import suite
from qbench.errors import SuiteError
from qbench.quant.recipe import Recipe

TEXT = """\
suite: s
models: [digits-cnn]
data: {dataset: digits}
matrix: {modes: [fp32, qat]}
quantize:
  qat:
    epochs: 4
"""
CODE = """
def loss(outputs, labels): ...
def scaled(outputs, labels, scale): ...
def train(model, batches, settings): ...
"""


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Where the suite and the user's Python lie."""
    monkeypatch.chdir(tmp_path)
    (tmp_path / "own.py").write_text(CODE)
    return tmp_path


def read(*lines: str) -> suite.Suite:
    """The suite with these keys of qat."""
    Path("s.yaml").write_text(TEXT + "".join(f"    {line}\n" for line in lines))
    return suite.read("s.yaml")


def recipe(*lines: str, backend: str = "onednn") -> Recipe:
    """The qat recipe of a backend."""
    return read(*lines).quantize.recipe("qat", backend)


def test_without_the_keys_a_recipe_is_what_it_was(folder: Path) -> None:
    """Nothing of them is set, so that keys of the cache stay."""
    own_recipe = recipe()
    assert (
        own_recipe.optimizer,
        own_recipe.optimizer_keys,
        own_recipe.schedule_keys,
        own_recipe.loss,
        own_recipe.train,
    ) == (
        None,
        (),
        (),
        None,
        None,
    )
    assert (own_recipe.schedule, own_recipe.learning_rate) == ("cosine", 1e-3)


def test_names_with_their_keys_become_a_recipe(folder: Path) -> None:
    """lr is the learning rate; a backend's own go before, one by one; a loop decides the rest itself."""
    optimizer = "optimizer: {name: sgd, lr: 0.05, momentum: 0.9, nesterov: true}"
    others = "backends: {x86: {learning_rate: 0.2, schedule: constant}, fbgemm: {train: {python: 'own.py:train'}}}"
    lines = (optimizer, "schedule: {name: step, every: 2}", "loss: {python: 'own.py:loss'}", others)
    own_recipe = recipe(*lines)
    assert (own_recipe.optimizer, own_recipe.optimizer_keys) == ("sgd", (("momentum", 0.9), ("nesterov", True)))
    assert (own_recipe.learning_rate, own_recipe.schedule, own_recipe.schedule_keys) == (0.05, "step", (("every", 2),))
    assert own_recipe.loss == "own.py:loss"
    x86 = recipe(*lines, backend="x86")
    assert (x86.learning_rate, x86.schedule, x86.schedule_keys, x86.optimizer) == (0.2, "constant", (), "sgd")
    fbgemm = recipe(*lines, backend="fbgemm")
    assert (fbgemm.train, fbgemm.optimizer, fbgemm.loss, fbgemm.schedule) == ("own.py:train", None, None, None)
    assert recipe("optimizer: {name: adamw, betas: [0.8, 0.9]}").optimizer_keys == (("betas", (0.8, 0.9)),)


@pytest.mark.parametrize(
    ("line", "said"),
    [
        (
            "optimizer: sdg",
            "8:16: quantize.qat.optimizer: no optimizer named 'sdg'; did you mean 'sgd'? available: sgd",
        ),
        ("optimizer: {name: SGD}", "8:23: quantize.qat.optimizer.name: no optimizer named 'SGD'; did you mean 'sgd'?"),
        ("optimizer: {lr: 1}", "8:16: quantize.qat.optimizer: expected the name of an optimizer with its keys"),
        ("optimizer: {name: sgd, betas: [0.9, 0.9]}", "8:35: quantize.qat.optimizer.betas: sgd has no key 'betas'; it"),
        ("optimizer: {name: sgd, momentun: 1}", "sgd has no key 'momentun'; did you mean 'momentum'? it has lr, mom"),
        ("optimizer: {name: sgd, lr: 0}", "8:32: quantize.qat.optimizer.lr: expected a number above 0, got 0"),
        ("optimizer: {name: sgd, lr: .inf}", "quantize.qat.optimizer.lr: expected a finite number, got inf"),
        ("optimizer: {name: adam, betas: [0.9]}", "quantize.qat.optimizer.betas: expected two numbers, such as [0.9"),
        ("optimizer: {name: sgd, nesterov: true}", "Nesterov momentum needs a momentum above 0, and no dampening"),
        ("optimizer: {name: sgd, momentum: 0.9, dampening: 0.1, nesterov: true}", "Nesterov momentum needs a momentum"),
        ("optimizer: {name: sgd, momentum: 0.0, nesterov: true}", "quantize.qat.optimizer.nesterov: Nesterov momentum"),
        (
            "schedule: ",
            "quantize.qat.schedule: expected the name of a schedule, got nothing; leave the key out for its default",
        ),
        (
            "backends: {x86: {epochs: 1, schedule: {name: cosine, warmup: 1}}}",
            "there is 1 epoch; raise epochs, or warm",
        ),
        ("loss: ':f'", "quantize.qat.loss: no loss named ':f'; available: cross_entropy"),
        ("loss: {}", "quantize.qat.loss: expected {python: file.py:function}; python is missing"),
        ("schedule: cosin", "8:15: quantize.qat.schedule: no schedule named 'cosin'; did you mean 'cosine'? available"),
        ("schedule: step", "8:15: quantize.qat.schedule: step needs every, such as {name: step, every: 2}"),
        ("schedule: {name: step, every: 4}", "schedule.every: the rate would never fall: there are 4 epochs; raise ep"),
        (
            "schedule: {name: step, every: 3, warmup: 1}",
            "schedule.every: the rate would never fall: there are 4 epochs",
        ),
        ("schedule: {name: cosine, warmup: 4}", "schedule.warmup: all epochs would be warm-up: there are 4 epochs"),
        ("backends: {x86: {epochs: 1, schedule: {name: step, every: 1}}}", "x86.schedule.every: the rate would never"),
        (
            "loss: cross-entropy",
            "8:11: quantize.qat.loss: no loss named 'cross-entropy'; did you mean 'cross_entropy'?",
        ),
        ("loss: own.py:loss", "8:11: quantize.qat.loss: expected a name or {python: own.py:loss}, got 'own.py:loss'"),
        ("loss: {pyton: x}", "quantize.qat.loss.pyton: unknown key 'pyton'; available: python"),
        ("loss: {python: 'own.py:lost'}", "8:20: quantize.qat.loss.python: no 'lost' in own.py; did you mean 'loss'?"),
        ("loss: {python: 'none.py:loss'}", "quantize.qat.loss.python: no such file or folder: "),
        ("loss: {python: 'own.py:scaled'}", "qbench calls scaled with 2 arguments; give scale a default"),
        ("train: {python: 'own.py:loss'}", "qbench calls loss with 3 arguments, and it takes 2"),
        ("train: own.py:train", "8:12: quantize.qat.train: expected {python: file.py:function}, got 'own.py:train'"),
    ],
)
def test_what_cannot_be_trained_is_refused_at_its_place(line: str, said: str, folder: Path) -> None:
    """With line and column, what was meant, and what there is."""
    with pytest.raises(SuiteError) as raised:
        read(line)
    assert said in str(raised.value)


@pytest.mark.parametrize(
    ("lines", "said"),
    [
        (
            ("learning_rate: 0.1", "optimizer: {name: sgd, lr: 0.1}"),
            "optimizer.lr: learning_rate says this, too; remove",
        ),
        (
            ("train: {python: 'own.py:train'}", "schedule: constant"),
            "schedule: a training loop of your own (train) deci",
        ),
    ],
)
def test_two_keys_that_say_one_thing_are_refused(lines: tuple[str, str], said: str, folder: Path) -> None:
    """Neither is dropped in silence."""
    with pytest.raises(SuiteError) as raised:
        read(*lines)
    assert said in str(raised.value)


@pytest.mark.parametrize(
    "lines",
    [
        ("schedule: {name: step, every: 3}",),
        ("schedule: {name: step, every: 2, warmup: 1}",),
        ("schedule: {name: cosine, warmup: 3}",),
        ("optimizer: {name: sgd, momentum: 0.9, dampening: 0, nesterov: true}",),
        ("train: {python: 'own.py:train'}", "distill: null"),
        ("learning_rate: 0.1", "optimizer: {name: sgd, momentum: 0.9}"),
    ],
)
def test_what_just_fits_is_taken(lines: tuple[str, ...], folder: Path) -> None:
    """A rate that falls once, a warm-up that leaves an epoch, and keys that say nothing twice."""
    assert read(*lines).suite == "s"
