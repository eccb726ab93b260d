"""Writes docs/deviations.md from comments in the code: `# deviates:` (from a paper) and `# unstated:` (in a paper).

    python -m tools.docs.deviations > docs/deviations.md

`# deviates:` marks a difference to a paper, `# unstated:` a choice that a paper does not state.
"""

import re
import sys
from collections import Counter
from pathlib import Path

ROOT = Path(__file__).parents[2]
_MARK = re.compile(r"#\s*(deviates|unstated):\s*(.*)")


def find_marks(root: Path = ROOT) -> list[tuple[str, str, str]]:
    """Find every marked comment in gt_models/ and gt_bench/, with its continuation lines.

    Returns:
        (kind, file, text) in the order of files and lines.
    """
    found = []
    for path in sorted([*root.glob("gt_models/**/*.py"), *root.glob("gt_bench/**/*.py")]):
        lines = path.read_text(encoding="utf-8").splitlines()
        for number, line in enumerate(lines):
            match = _MARK.search(line)
            if not match or path == Path(__file__):
                continue
            text = [match[2]]
            for further in lines[number + 1 :]:
                further = further.strip()
                if not further.startswith("#") or _MARK.search(further):
                    break
                text.append(further.lstrip("# "))
            found.append((match[1], str(path.relative_to(root)), " ".join(text).strip()))
    return found


def page(root: Path = ROOT) -> str:
    """Returns the page as Markdown."""
    marks = find_marks(root)
    parts = [
        "# Deviations and unstated choices\n\n"
        "`python -m tools.docs.deviations > docs/deviations.md` writes this page from the comments `# deviates:` and\n"
        "`# unstated:` in the code. It lists where the code differs from a paper on purpose. The choices of a\n"
        "single cell are listed under `origin:` in its recipe.\n\n"
        "## Differences from a paper\n\n| where | what |\n|---|---|\n"
    ]
    parts += [f"| `{file}` | {text.replace('|', chr(92) + '|')} |\n" for k, file, text in marks if k == "deviates"]
    unstated = Counter(file for kind, file, _ in marks if kind == "unstated")
    parts.append(
        "\n## Details that a paper leaves open\n\n"
        f"{unstated.total()} comments next to the code say what was chosen: `git grep -A 2 '# unstated:'`. Files:\n\n"
    )
    parts += [f"- `{file}`: {count}\n" for file, count in unstated.items()]
    return "".join(parts)


if __name__ == "__main__":
    sys.stdout.write(page())
