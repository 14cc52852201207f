"""Rules of qbench/bisect/json_text.py: a program reads what the words say."""

from __future__ import annotations

import json
from dataclasses import replace

import pytest
from made_bisections import ANSWERS, METRIC, VERSIONS, ask, make_question

from qbench.bisect import json_text, text


@pytest.mark.parametrize("name", ANSWERS)
def test_json_names_what_the_words_name(name: str) -> None:
    """And only where one is named."""
    asked, answer = ANSWERS[name]
    question = ask(asked)
    written = json_text.as_json(question, answer, {"page": "bisect.html"}, METRIC)
    said = json.loads(written)
    assert written == json.dumps(said, indent=1, ensure_ascii=False)
    assert said["text"] == text.sum_up(question, answer, METRIC)
    assert (said["named"] is None) == (answer.kind != "named")
    assert said["page"] == "bisect.html"
    assert len(said["looks"]) == len(answer.judged)
    assert (said["chance"] is None) == (answer.bracket is None) == (said["candidates"] == [])
    assert (said["good"], said["bad"]) == (question.candidates[0], question.candidates[-1])
    if name == "several":
        assert (said["candidates"], said["chance"]) == ([VERSIONS[3], VERSIONS[4]], 0.99)
    if name == "several, mended":
        assert said["candidates"] == [VERSIONS[::-1][2], VERSIONS[::-1][3]]
    if name == "named by accuracy":
        look = said["looks"][-1]
        assert (look["candidate"], look["side"], look["size"], look["p_bad"]) == (VERSIONS[8], "bad", 450, 1.0)
        assert look["value"] == {"value": -0.02, "low": -0.03, "high": -0.01}
        assert (said["looks"][0]["value"], said["looks"][0]["size"]) == (None, None)
    if name == "named":
        assert (said["named"], said["candidates"], said["chance"]) == (VERSIONS[4], [VERSIONS[4]], 0.987)
    if name == "mended":
        assert said["named"] == VERSIONS[::-1][3], "the release that mended is the newer of the two"


def test_letters_stay_and_what_is_no_number_is_not_written() -> None:
    """A layer may be called anything; no program could read it."""
    asked, answer = ANSWERS["named"]
    assert answer.bracket is not None
    question = make_question("latency", candidates=tuple(f"r\u00e9seau {number}" for number in range(9)))
    assert '"named": "r\u00e9seau 4"' in json_text.as_json(question, answer, {})
    broken = replace(answer, bracket=replace(answer.bracket, chance=float("nan")))
    with pytest.raises(ValueError, match="JSON"):
        json_text.as_json(ask(asked), broken, {})
