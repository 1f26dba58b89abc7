"""Texts of unknown origin, made fit for a report: nothing invisible, and no more than is read."""

from __future__ import annotations

import re

from cuvil_regress.model import OutputResult, Result

_UNSEEN = re.compile("[\x00-\x08\x0b\x0c\x0e-\x1f\x7f-\x9f\ud800-\udfff\ufffe\uffff]")
"""What XML can't hold, and the control characters that it can, but that no one sees."""


def visible(text: str) -> str:
    """`text` with every control character, surrogate and non-character written as Python would write it."""
    return _UNSEEN.sub(_escaped, text.replace("\r\n", "\n"))


def _escaped(found: re.Match[str]) -> str:
    code = ord(found[0])
    return f"\\x{code:02x}" if code < 0x100 else f"\\u{code:04x}"


def clipped(text: str, limit: int) -> str:
    """The end of a text that is longer than `limit` characters, with a note on how much was left out."""
    if len(text) <= limit:
        return text
    return f"[the first {len(text) - limit} characters are left out]\n{text[-limit:]}"


def shortened(text: str, limit: int) -> str:
    """The beginning of a text, in one line of at most `limit` characters."""
    line = " ".join(visible(text).split())
    return line if len(line) <= limit else f"{line[: limit - 1]}…"


def describe_bits(result: Result) -> str:
    """Whether the bits are those of the first target, which itself is `first`."""
    if not result.outputs:
        return "-"
    if not any(output.reference for output in result.outputs):
        return "first"
    return {True: "yes", False: "NO", None: "-"}[result.bit_identical]


def describe_output_bits(output: OutputResult) -> str:
    """The same for one output, with the number of elements that differ."""
    if not output.reference:
        return "first"
    return "yes" if output.differing_elements == 0 else f"{output.differing_elements} differ"
