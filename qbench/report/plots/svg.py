"""A matplotlib figure as inline SVG: text stays text, colours become the page's own variables, equal figures give equal
bytes."""

from __future__ import annotations

import html
import io
import re
from dataclasses import dataclass
from typing import Any

from qbench.formatting import clean
from qbench.report.plots import canvas

_SHORTENED = re.compile(r"(<text [^>]*>)([^<]*…[^<]*)")
_TOLD = 3  # names that one shortened text may stand for


@dataclass(frozen=True, kw_only=True)
class Words:
    """What a reader who cannot see the picture is told; ``key`` makes ids unique in a page. ``names`` are those that
    the picture may show shortened: the whole one is told where the pointer rests."""

    key: str
    title: str
    description: str
    names: frozenset[str] = frozenset()


def draw(figure: Any, **style: Any) -> str:
    """The figure as an SVG file, without a date. What has a label of its own tells it where the pointer rests."""
    from matplotlib.lines import Line2D
    from matplotlib.text import Text

    labels: list[str] = []
    for artist in figure.findobj(lambda artist: isinstance(artist, Line2D | Text)):
        if (label := artist.get_label()) and not label.startswith("_"):  # matplotlib's own begin so
            artist.set_gid(f"told-{len(labels)}")
            labels.append(f"<title>{html.escape(clean(label))}</title>")
    buffer = io.StringIO()
    canvas.clean_texts(figure)
    with canvas.settings():
        figure.savefig(buffer, format="svg", metadata={"Date": None, "Creator": None}, **style)
    return re.sub(r'(<g id="told-(\d+)">)', lambda match: match[1] + labels[int(match[2])], buffer.getvalue())


def inline(figure: Any, words: Words) -> str:
    """The figure for the body of an HTML page: no prologue, namespaces or metadata, no colour of its own."""
    svg = draw(figure, transparent=True)
    svg = svg[svg.index("<svg") :]
    svg = re.sub(r"<metadata>.*?</metadata>", "", svg, flags=re.DOTALL)
    box = re.search(r'viewBox="[^"]*"', svg)
    body = _use_variables(_name_ids(svg[svg.index(">") + 1 :], words.key))
    body = re.sub(r"<style.*?</style>", "", body, count=1, flags=re.DOTALL)  # it would style the whole page
    body = re.sub(r"\n\s*", "\n", body)
    body = re.sub(r"<!--.*?-->\n?", "", body, flags=re.DOTALL)  # matplotlib's copies of each text
    body = _SHORTENED.sub(lambda match: _tell_whole(match, words.names), body)
    name, more = f"{words.key}-title", f"{words.key}-description"
    return (
        f'<svg {box.group(0) if box else ""} role="img" aria-labelledby="{name} {more}">'
        f'<title id="{name}">{html.escape(clean(words.title))}</title>'
        f'<desc id="{more}">{html.escape(clean(words.description))}</desc>{body.strip()}'
    )


def _tell_whole(match: re.Match[str], names: frozenset[str]) -> str:
    """The text with the names that it may stand for as its tooltip."""
    start, end = (html.unescape(part) for part in match[2].split("…", 1))
    whole = sorted(name for name in names if name.startswith(start) and name.endswith(end))
    title = f"<title>{html.escape(clean('; '.join(whole[:_TOLD])))}</title>" if whole else ""
    return f"{match[1]}{title}{match[2]}"


def _name_ids(body: str, key: str) -> str:
    body = re.sub(r'(<\w+ )id="', rf'\1id="{key}-', body)
    body = re.sub(r'xlink:href="#', f'href="#{key}-', body)
    return body.replace("url(#", f"url(#{key}-")


def _use_variables(body: str) -> str:
    for color, variable in canvas.variables().items():
        body = re.sub(rf"(?<=[:\"' ]){color}\b", variable, body)
    return re.sub(r"font-family: [^;\"<]*|'DejaVu Sans'[^;\"<]*", _font, body)


def _font(match: re.Match[str]) -> str:
    return "font-family: var(--font)" if match.group(0).startswith("font-family") else "var(--font)"
