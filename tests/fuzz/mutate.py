"""Mutations that several fuzzers use: of bytes, of text, of a tree of plain values, each by a seeded generator."""

from __future__ import annotations

import copy
import random
from collections.abc import Sequence
from typing import Any

NUMBERS: tuple[Any, ...] = (
    *(0, -1, 1, 2, 3, 255, 2**31, 2**53, 2**63, 2**64, 10**30, -(2**63)),
    *(0.0, -0.0, 0.5, 1.0, 1e-320, 1e308, -1e308, 0.1 + 0.2, 1e-9, float("inf"), float("nan"), float("-inf")),
)
WORDS: tuple[Any, ...] = (
    *("", " ", "0", "1", "-1", "2%", "1e999", "nan", "null", "true", "a/b/c/t1/b1", "../../etc/passwd", "/dev/zero"),
    *("=1+1", "+1", "@x", "\t", "\r\n", "\0", "\x1b[31m", "\u202eabc", "\ud7ff", "é", "x" * 5000, "%n%s", "{0}"),
    *("python:x.py:f", "<script>", "::error::x", "|a|", "`", "${{x}}", "t0", "t1/b0", ".", "..", "~", "*", "[", "{"),
)
OTHERS: tuple[Any, ...] = (None, True, False, [], {}, [[]], [None], {"": None}, [1, 2, 3], ["a", "a"], {"a": {"b": []}})


def value(random: random.Random) -> Any:
    """A value that nobody expects."""
    return copy.deepcopy(random.choice((random.choice(NUMBERS), random.choice(WORDS), random.choice(OTHERS))))


def changed_bytes(random: random.Random, data: bytes, tokens: Sequence[bytes] = ()) -> bytes:
    """The bytes with a few of them, or a few pieces, changed, cut out, doubled or put in."""
    changed = bytearray(data)
    for _ in range(random.choice((1, 1, 2, 4, 8))):
        place = random.randrange(len(changed) + 1)
        end = min(len(changed), place + random.choice((1, 1, 4, 40)))
        kind = random.randrange(6)
        if kind == 0 and place < len(changed):
            changed[place] = random.randrange(256)
        elif kind == 1:
            del changed[place:end]
        elif kind == 2:
            changed[place:place] = changed[place:end]
        elif kind == 3 and tokens:
            changed[place:place] = random.choice(tokens)
        elif kind == 4 and tokens:
            changed[place:end] = random.choice(tokens)
        elif kind == 5 and random.random() < 0.2:
            del changed[place:]
    return bytes(changed)


def changed_lines(random: random.Random, data: bytes) -> bytes:
    """The text with lines taken out, doubled, exchanged, or moved to another indentation."""
    lines = data.splitlines(keepends=True)
    for _ in range(random.choice((1, 1, 2, 3))):
        if not lines:
            break
        first, second = random.randrange(len(lines)), random.randrange(len(lines))
        kind = random.randrange(4)
        if kind == 0:
            del lines[first]
        elif kind == 1:
            lines.insert(second, lines[first])
        elif kind == 2:
            lines[first], lines[second] = lines[second], lines[first]
        else:
            lines[first] = b"  " + lines[first] if random.random() < 0.5 else lines[first].lstrip()
    return b"".join(lines)


def places(tree: Any) -> list[tuple[Any, Any]]:
    """Every container in the tree with each of its keys."""
    keyed = []
    pending = [tree]
    while pending:
        node = pending.pop()
        keys = list(node) if isinstance(node, dict) else list(range(len(node))) if isinstance(node, list) else []
        for key in keys:
            keyed.append((node, key))
            pending.append(node[key])
    return keyed


def changed_tree(random: random.Random, tree: Any) -> Any:
    """A copy of the tree with a few values replaced, taken out, exchanged, wrapped or renamed."""
    copied = copy.deepcopy(tree)
    for _ in range(random.choice((1, 1, 1, 2, 3, 6))):
        held = places(copied)
        if not held:
            return value(random)
        node, key = random.choice(held)
        other, other_key = random.choice(held)
        kind = random.randrange(8)
        if kind == 0:
            del node[key]
        elif kind == 1:
            node[key] = copy.deepcopy(other[other_key]) if other_key in other or isinstance(other, list) else None
        elif kind == 2:
            node[key] = [node[key]] if random.random() < 0.5 else {"a": node[key]}
        elif kind == 3 and isinstance(node, dict):
            node[_misspelt(random, str(key))] = node.pop(key)
        elif kind == 4 and isinstance(node, list):
            node.insert(key, copy.deepcopy(node[key]))
        elif kind == 5 and isinstance(node[key], int | float) and not isinstance(node[key], bool):
            node[key] = node[key] * random.choice((-1, 0, 1000, 1e-9, 1e300)) + random.choice((0, 1, -1))
        else:
            node[key] = value(random)
    return copied


def changed_numbers(random: random.Random, tree: Any) -> Any:
    """A copy of the tree in which a few numbers are others of their kind: larger, smaller, negative, none."""
    copied = copy.deepcopy(tree)
    numbers = [(node, key) for node, key in places(copied) if type(node[key]) in (int, float)]
    for node, key in random.sample(numbers, min(len(numbers), random.choice((1, 2, 5)))):
        factor = random.choice((0, -1, 0.5, 2, 1000, 1e-6, 1e12))
        node[key] = random.choice((type(node[key])(node[key] * factor), type(node[key])(node[key] * factor), None))
    return copied


def _misspelt(random: random.Random, word: str) -> str:
    place = random.randrange(len(word) + 1)
    return random.choice((word[:place] + word[place + 1 :], word[:place] + "x" + word[place:], word.upper()))
