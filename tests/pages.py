"""The pages of the documentation and their blocks."""

import re
from collections.abc import Iterator

from tests.conftest import ROOT

PAGES = [ROOT / "README.md", *sorted((ROOT / "docs").glob("*.md"))]


def blocks(text: str) -> list[tuple[str, str]]:
    """(language, content) of fenced blocks and of indented ones, which have no language."""
    fenced = re.findall(r"^```(\w*)[^\n]*\n(.*?)^```", text, re.S | re.M)
    rest = re.sub(r"^```.*?^```", "", text, flags=re.S | re.M)
    indented = re.findall(r"(?:^\n)((?:^    [^\n]*\n)+)", rest, re.M)
    return [*fenced, *(("", re.sub(r"^    ", "", block, flags=re.M)) for block in indented)]


def prose(text: str) -> Iterator[tuple[int, str]]:
    """Yields (number, text) of the lines outside of blocks, without code in backticks and targets of links."""
    fenced = False
    for number, line in enumerate(text.split("\n"), 1):
        if line.startswith("```"):
            fenced = not fenced
        elif not fenced and not line.startswith("    "):
            yield number, re.sub(r"`[^`]*`|\]\([^)]*\)", "", line)
