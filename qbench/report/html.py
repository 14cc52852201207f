"""The report as one HTML file: everything escaped, nothing loaded, and a Content-Security-Policy that says so."""

from __future__ import annotations

import base64
import functools
import hashlib
import re
from pathlib import Path
from typing import Any

from qbench.formatting import clean
from qbench.report import palette
from qbench.report.comparison import RunComparison
from qbench.report.page import Page

LONGEST = 44  # letters of a name; of a longer one the beginning and this many from its end are seen:
KEPT_TAIL = 20
_NEGATIVE = re.compile(r"(?<![^\s\[(~])-(?=\d[\d.,]*(?:e[+-]?\d+)?(?:[\s%\]);:…]|$))")
_HERE = Path(__file__).parent


def render(page: Page, comparison: RunComparison | None = None) -> str:
    """The HTML text of a page, with what changed from another run where one is given.

    The policy allows no source at all but inline styles, ``data:`` images and the one script by its hash.
    """
    script = (_HERE / "page.js").read_text("utf-8")
    return fill("page.jinja", page=page, comparison=comparison, script=script, policy=_policy(script))


def fill(template: str, *, script: str = "", **values: Any) -> str:
    """The text of a page of this room: its template with the style and the script, which are ours, and values, which
    are escaped; ``svg`` puts in a drawing, which was escaped when it was drawn."""
    from markupsafe import Markup

    style = palette.style() + (_HERE / "page.css").read_text("utf-8")
    page = _environment().get_template(template)
    text = page.render(style=Markup(style), script=Markup(script), svg=Markup, **values)
    return f"{text.rstrip()}\n"


@functools.cache
def _environment() -> Any:
    """Where templates are read, and what they may use: one for all pages, which keeps them compiled."""
    from jinja2 import Environment, FileSystemLoader, StrictUndefined

    environment = Environment(
        loader=FileSystemLoader(_HERE),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
        finalize=lambda value: clean(value) if type(value) is str else value,
    )
    environment.filters["minus"] = write_minus
    environment.filters["prose"] = write_prose
    environment.filters["cut"] = cut_name
    environment.filters["split_sentence"] = _split_sentence
    return environment


def _policy(script: str) -> str:
    digest = base64.b64encode(hashlib.sha256(script.encode()).digest()).decode()
    return (
        f"default-src 'none'; style-src 'unsafe-inline'; img-src data:; script-src 'sha256-{digest}'; "
        "base-uri 'none'; form-action 'none'"
    )


def _split_sentence(text: str) -> tuple[str, str]:
    """The first sentence, and what follows it."""
    first, *rest = re.split(r"(?<=[.!?]) (?=[A-Z0-9])", text, maxsplit=1)
    return first, " ".join(rest)


def write_minus(text: str) -> str:
    """The text with the true minus sign, which is as wide as a plus, before numbers that stand alone; a name or an id,
    whatever hyphens are in it, is as it was and can be pasted."""
    return _NEGATIVE.sub("\N{MINUS SIGN}", text)


def write_prose(text: str) -> str:
    """A sentence with its numbers' minus signs, and what stands between backticks as code that can be copied; a lone
    backtick is one."""
    from markupsafe import Markup, escape

    pieces = clean(text).split("`")
    if len(pieces) % 2 == 0:
        return write_minus(text)
    return Markup("").join(
        Markup("<code>{}</code>").format(piece) if number % 2 else escape(write_minus(piece))
        for number, piece in enumerate(pieces)
    )


def cut_name(name: str) -> str:
    """A long name in two pieces, of which the style cuts the first short: what the page holds, and what is copied from
    it, is the whole name; so is its title."""
    from markupsafe import Markup

    whole = clean(name)
    if len(whole) <= LONGEST:
        return whole
    pieces = Markup('<span class="cut" title="{whole}"><span>{head}</span>{tail}</span>')
    return pieces.format(whole=whole, head=whole[:-KEPT_TAIL], tail=whole[-KEPT_TAIL:])
