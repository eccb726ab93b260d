"""Copies the table of results into README.md: python -m tools.docs.readme."""

import re
from pathlib import Path

ROOT = Path(__file__).parents[2]
BEGIN, END = "<!-- results: python -m tools.docs.readme -->", "<!-- end of results -->"


def with_results(readme: str, results: str) -> str:
    """Returns the text of README.md with the first table of docs/results.md between its marks."""
    (table,) = re.findall(r"(?:^\|.*\n)+", results, re.M)[:1]
    before, _, rest = readme.partition(BEGIN)
    return f"{before}{BEGIN}\n\n{table}\n{END}{rest.partition(END)[2]}"


if __name__ == "__main__":
    path = ROOT / "README.md"
    results = (ROOT / "docs/results.md").read_text(encoding="utf-8")
    path.write_text(with_results(path.read_text(encoding="utf-8"), results), encoding="utf-8")
