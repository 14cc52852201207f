"""Rules of qbench/bisect/json_text.py: a program reads what the words say."""

from __future__ import annotations

import json

import pytest
from made_bisections import ANSWERS, METRIC, VERSIONS, ask

from qbench.bisect import json_text, text


@pytest.mark.parametrize("name", ANSWERS)
def test_json_names_what_the_words_name(name: str) -> None:
    """And only where one is named."""
    asked, answer = ANSWERS[name]
    question = ask(asked)
    said = json.loads(json_text.as_json(question, answer, {"page": "bisect.html"}, METRIC))
    assert said["text"] == text.sum_up(question, answer, METRIC)
    assert (said["named"] is None) == (answer.kind != "named")
    assert said["page"] == "bisect.html"
    assert len(said["looks"]) == len(answer.judged)
    if name == "named":
        assert (said["named"], said["candidates"], said["chance"]) == (VERSIONS[4], [VERSIONS[4]], 0.987)
    if name == "mended":
        assert said["named"] == VERSIONS[::-1][3], "the release that mended is the newer of the two"
