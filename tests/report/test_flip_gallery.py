"""Rules of qbench/report/flip_gallery.py: which images of flips a page shows, and what stands beside them."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from made_records import int8

from qbench.evaluate import thumbnails
from qbench.evaluate.flips import Flip, Kind
from qbench.record.stored_run import RunInfo, StoredRun, SuiteInfo
from qbench.report.flip_gallery import Gallery, gallery
from qbench.report.flips import CaseFlips

RUN = StoredRun(folder=Path("/none"), info=RunInfo(suite=SuiteInfo(name="demo")), records=())


def flip(position: int, kind: Kind = "harmful", *, sure: float = 0.5, label: int | None = 3, int8: int = 5) -> Flip:
    """An example that flips."""
    return Flip(position=position, id=f"photo/{position}", kind=kind, label=label, fp32=3, int8=int8, sure=sure)


def case(*flips: Flip, of: str = "net/static/x86/t1/b1", same_as: str | None = None) -> CaseFlips:
    """A variant with these flips."""
    return CaseFlips(record=int8(of), flips=flips, classes=(), same_as=same_as)


@pytest.fixture
def kept(monkeypatch: pytest.MonkeyPatch) -> dict[int, bytes]:
    """The images that a run kept, by the position of their example; one byte each where nothing else is said."""
    images: dict[int, bytes] = {}

    def stored(folder: Path, position: int) -> tuple[str, bytes] | None:
        content = images.get(position, b"x")
        return ("image/png", content) if content else None

    monkeypatch.setattr(thumbnails, "stored", stored)
    return images


def shown(*cases: CaseFlips) -> Gallery:
    """The gallery of these variants."""
    return gallery(RUN, cases)


def test_what_most_variants_flip_comes_first_then_what_fp32_was_surest_of(kept: dict[int, bytes]) -> None:
    """Then by place; a variant that shares another's predictions counts for none, and what was not kept is left out."""
    kept[9] = b""
    both = case(flip(4), flip(9), of="net/qat/x86/t1/b1")
    pictures = shown(
        case(flip(1, sure=0.2), flip(2, sure=0.9), flip(3, sure=0.2), flip(4, sure=0.1), flip(9)),
        both,
        case(flip(3), flip(5), of="net/static/x86/t2/b1", same_as="net/static/x86/t1/b1"),
    )
    assert [picture.id for picture in pictures.pictures] == ["photo/4", "photo/2", "photo/1", "photo/3"]
    assert pictures.more == 0


def test_a_page_shows_48_examples(kept: dict[int, bytes]) -> None:
    """And counts the others that were kept."""
    kept[60] = b""
    pictures = shown(case(*(flip(position) for position in range(61))))
    assert (len(pictures.pictures), pictures.more) == (48, 12)


def test_images_take_no_more_than_700_kb(kept: dict[int, bytes]) -> None:
    """To the byte; a smaller one behind what has no room is shown."""
    kept.update({0: bytes(400_000), 1: bytes(300_001), 2: bytes(300_000), 3: b"x"})
    pictures = shown(case(*(flip(position) for position in range(4))))
    assert ([picture.id for picture in pictures.pictures], pictures.more) == (["photo/0", "photo/2"], 2)


@pytest.mark.parametrize(
    ("kinds", "label", "said", "tone"),
    [
        (("harmful",), 3, "label 3, right to wrong", "bad"),
        (("beneficial",), 3, "label 3, wrong to right", "good"),
        (("changed",), None, "changed", "muted"),
        (("harmful", "beneficial"), 3, "label 3, both ways", "muted"),
        (("harmful", "harmful"), 3, "label 3, right to wrong", "bad"),
    ],
)
def test_a_picture_says_which_way_its_example_went(
    kept: dict[int, bytes], kinds: tuple[Any, ...], label: int | None, said: str, tone: str
) -> None:
    """In words, which are read aloud, too."""
    cases = [
        case(flip(0, kind, label=label), of=f"net/{mode}/x86/t1/b1")
        for mode, kind in zip(("static", "qat"), kinds, strict=False)
    ]
    (picture,) = shown(*cases).pictures
    assert (picture.label, picture.tone, picture.alternative) == (said, tone, f"example photo/0, {said}")
    assert picture.source == "data:image/png;base64,eA=="


def test_each_move_is_told_with_the_variants_that_make_it(kept: dict[int, bytes]) -> None:
    """Each once, and with its model's name where there are several."""
    arrow = "3\N{NO-BREAK SPACE}\N{RIGHTWARDS ARROW}\N{NO-BREAK SPACE}"
    first, second = case(flip(0)), case(flip(0), of="net/static/x86/t2/b1")
    other = case(flip(0, int8=7), of="net/qat/x86/t1/b1")
    (picture,) = shown(first, second, other).pictures
    assert picture.lines == (f"{arrow}5: static \u00b7 x86", f"{arrow}7: qat \u00b7 x86")
    (picture,) = shown(first, case(flip(0), of="more/static/x86/t1/b1")).pictures
    assert picture.lines == (f"{arrow}5: net static \u00b7 x86, more static \u00b7 x86",)
