"""Text that anybody may have written, on its way to where it could act: a terminal, a log, a picture, a page."""

from __future__ import annotations

import re

# C0 and C1 controls but tab and line feed, separators of lines and paragraphs, what Unicode never assigns, lone
# surrogates, and the controls of writing direction (Unicode standard annex 9): with these a name can look like another,
# move the cursor or recolour what stands before it. XML takes few of them.
CONTROL = re.compile(
    "[\x00-\x08\x0b-\x1f\x7f-\x9f\u061c\u200e\u200f\u2028-\u202e\u2066-\u2069\ufeff\ufffe\uffff\ud800-\udfff]"
)


def join_lines(text: str) -> str:
    """The text without a line's end or a tab: what is to be one line of a terminal or a table stays one."""
    return text.replace("\n", " ").replace("\t", " ")
