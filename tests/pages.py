"""The pages of the documentation and their blocks."""

import re

from tests.conftest import ROOT

PAGES = [ROOT / "README.md", *sorted((ROOT / "docs").glob("*.md"))]


def blocks(text: str) -> list[tuple[str, str]]:
    """(language, content) of fenced blocks and of indented ones, which have no language."""
    fenced = re.findall(r"^```(\w*)[^\n]*\n(.*?)^```", text, re.S | re.M)
    rest = re.sub(r"^```.*?^```", "", text, flags=re.S | re.M)
    indented = re.findall(r"(?:^\n)((?:^    [^\n]*\n)+)", rest, re.M)
    return [*fenced, *(("", re.sub(r"^    ", "", block, flags=re.M)) for block in indented)]
