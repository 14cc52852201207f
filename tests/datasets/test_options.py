"""Rules of datasets/options.py: what an option is where the suite says nothing, and which do not go together."""

from __future__ import annotations

from typing import Any

import pytest
from made_records import same_as_golden
from pydantic import ValidationError

from qbench.datasets import options as opt
from qbench.errors import DataError


def test_what_a_suite_does_not_say_is_written_down() -> None:
    """Whoever changes a default changes the figures of suites that do not name it. ``QBENCH_WRITE_GOLDEN=1`` writes the
    list anew."""
    lines = [f"{name}: {key} = {value!r}" for name, model in opt.OPTIONS.items() for key, value in model()]
    assert same_as_golden("data_options.txt", "\n".join(lines) + "\n")


@pytest.mark.parametrize(
    ("model", "options"),
    [
        (opt.NpzOptions, {"mean": [0, 0, 0], "std": 2}),
        (opt.NpzOptions, {"mean": 1, "std": [1, 2, 3]}),
        (opt.NpzOptions, {"mean": [0, 0], "std": [1, 1]}),
        (opt.ImageFolderOptions, {"size": 8, "resize": 8}),
        (opt.ImageFolderOptions, {"size": [8, 6], "resize": 7}),
        (opt.ImageFolderOptions, {"channels": 1}),
        (opt.ImageFolderOptions, {"order": "bgr"}),
        (opt.TextsOptions, {"stride": 128}),
        (opt.TextsOptions, {"stride": 16, "length": 16}),
        (opt.CocoOptions, {"size": 8}),
        (opt.TextLinesOptions, {"size": [8, 16]}),
    ],
)
def test_options_that_go_together(model: type[opt.DatasetOptions], options: dict[str, Any]) -> None:
    """Up to their limits."""
    assert opt.read(model, options).list_given(model).keys() == options.keys()


@pytest.mark.parametrize(
    ("model", "options", "said"),
    [
        (opt.NpzOptions, {"mean": [0, 0], "std": [1, 1, 1]}, ["mean has 2 channels, std has 3"]),
        (opt.ImageFolderOptions, {"resize": 9}, ["resize needs size, the height and width of the crop after it"]),
        (
            opt.ImageFolderOptions,
            {"size": 8, "resize": 7},
            ["resize: the short side (7) must be at least size (8)"],
        ),
        (
            opt.ImageFolderOptions,
            {"order": "bgr", "channels": 1},
            ["order: bgr is of 3 channels, channels is 1; take one of the two out"],
        ),
        (opt.TextsOptions, {"stride": 129}, ["stride: windows of 128 tokens would leave some out"]),
        (opt.TextsOptions, {"stride": 17, "length": 16}, ["stride: windows of 16 tokens would leave some out"]),
        (
            opt.CocoOptions,
            {"resize": 640},
            ["resize: a crop would cut boxes; images become `size` whole, by fit: ('letterbox', 'stretch')"],
        ),
        (opt.CocoOptions, {"size": None}, ["size: expected the height and width that the network takes"]),
        (
            opt.TextLinesOptions,
            {"resize": 99},
            ["resize: a crop would cut letters; lines become `size` whole, by fit: ('pad', 'stretch')"],
        ),
        (opt.TextLinesOptions, {"size": None}, ["size: expected the height and width that the network takes"]),
        (
            opt.DocstringsOptions,
            {"lenght": 3, "documents": 0},
            [
                "documents: expected a whole number of at least 1, got 0",
                "no option 'lenght'; did you mean 'length'? options of docstrings: tokenizer, length, tokens, pad, "
                "corpus, documents",
            ],
        ),
        (opt.DigitsOptions, {"a": 3}, ["no option 'a'; digits takes no options"]),
    ],
)
def test_options_that_do_not_go_together_are_told(
    model: type[opt.DatasetOptions], options: dict[str, Any], said: list[str]
) -> None:
    """All at once, each behind the name of the option that it is about; behind the data set's name, or another."""
    with pytest.raises(DataError) as caught:
        opt.read(model, options)
    assert sorted(str(caught.value).split("\n")) == [f"{model.loader}: {line}" for line in said]
    with pytest.raises(DataError) as elsewhere:
        opt.read(model, options, "s.yaml")
    assert sorted(str(elsewhere.value).split("\n")) == [f"s.yaml: {line}" for line in said]
    with pytest.raises(ValidationError) as raised:
        model.model_validate(options)
    assert sorted(map(str, opt.explain(raised.value, model))) == said
