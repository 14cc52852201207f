"""What a command takes, and what it does for a caller who names nothing."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest
import typer
from made_records import same_as_golden

from qbench.cli.main import app
from qbench.cli.options import with_hosts


def list_commands(command: Any, words: tuple[str, ...] = ()) -> Iterator[tuple[str, Any]]:
    """Each command below this one with the words that call it."""
    for name, inner in sorted(getattr(command, "commands", {}).items()):
        yield from list_commands(inner, (*words, name))
    if not hasattr(command, "commands"):
        yield " ".join(words), command


def describe(parameter: Any) -> str:
    """``--jobs  default 1, from 1, repeatable``."""
    limits = parameter if hasattr(parameter, "min") else parameter.type
    low, high = getattr(limits, "min", None), getattr(limits, "max", None)
    facts = {
        "required": parameter.required,
        f"default {parameter.default}": not parameter.required,
        f"from {low}": low is not None,
        f"to {high}": high is not None,
        "repeatable": parameter.multiple,
    }
    names = [*parameter.opts, *parameter.secondary_opts]
    return f"  {' / '.join(names)}: {', '.join(fact for fact, holds in facts.items() if holds)}"


def test_the_options_of_every_command_and_what_holds_without_them() -> None:
    """Names, defaults and limits are what scripts rely on; tests give most options, so that none would notice another
    default. ``QBENCH_WRITE_GOLDEN=1`` writes the list anew."""
    lines = []
    for words, command in list_commands(typer.main.get_command(app)):
        lines += [f"qbench {words}", *(describe(parameter) for parameter in command.params)]
    assert same_as_golden("options.txt", "\n".join(lines) + "\n")


@pytest.mark.parametrize(
    ("overrides", "hosts", "expected"),
    [
        (None, None, ()),
        (["a=1"], None, ("a=1",)),
        (None, "native, avx2,", ("hosts=[native, avx2]",)),
        (["a=1"], "", ("a=1", "hosts=[]")),
    ],
)
def test_hosts_are_one_more_override(overrides, hosts, expected) -> None:
    """Behind the others, so that it wins; where none are named, the suite's stay."""
    assert with_hosts(overrides, hosts) == expected
