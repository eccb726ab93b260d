"""Comments, docstrings, messages and pages use standard words. `WORDS` has the word to write instead."""

import io
import re
import tokenize
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.conftest import ROOT
from tests.pages import PAGES, prose

# {pattern: what to write instead}; patterns match whole words, in any case
WORDS = {
    r"held (against|beside)|hold(s|ing)? \w+( \w+)? (against|beside)": "compared with",
    r"at hand|(can|cannot|could|to|may|must) be had": "available",
    r"(is|are|was|were) said|says?": "reports, prints, raises, states",
    r"mend(s|ed|ing)?": "fix",
    r"anew": "again",
    r"go(es|ing)? on": "continues, resumes",
    r"of one's own": "user-supplied, custom",
    r"beside": "next to, in addition to",
    r"rooms?|houses?": "package, module, layer",
    r"faces?": "interface",
    r"in print|the print|printed (number|value|mean|deviation|count)s?": "published",
    r"stands?(?! for)(?!-)": "is, is listed",
    r"asked": "requested, expected",
    r"present (tree|code|one)": "current code",
    r"lack(s|ed|ing)?(?! of)": "is missing",
    r"t(ell|ells|old|elling) (\w+ ){0,4}apart": "distinguish",
    r"save (for|where|that|what)": "except",
    r"so many|as many as": "n, up to n",
    r"kept": "saved, stored",
    r"left behind|leaves? behind": "artifacts",
    r"do(es)? nothing twice": "is idempotent",
}
CHECKED = [(re.compile(rf"\b(?:{pattern})\b", re.IGNORECASE), word) for pattern, word in WORDS.items()]

QUOTING = ("claims.md", "results.md")  # generated pages with sentences and remarks of the papers
# {file: {text of a line that contains a listed word: why it is right}}
EXCEPTIONS = {
    "docs/deviations.md": {"the paper does not say": "quotes a comment"},
    "gt_bench/claims/evaluate.py": {"asked here": "a value of the public key `said` in claims.yaml"},
    "gt_bench/claims/table.py": {"asked here": "a value of the public key `said` in claims.yaml"},
    "gt_bench/reports/html/build.py": {"asked here": "a value of the public key `said` in claims.yaml"},
    "gt_bench/reports/results_page.py": {"asked here": "a value of the public key `said` in claims.yaml"},
    "gt_bench/runtime/malloc.py": {"glibc, freed memory kept": "a value in records"},
    "gt_bench/scheduling/job.py": {'"say": text': "a key of the protocol"},
    "gt_bench/tasks/configuration_ranking.py": {"the paper does not say": "docs/deviations.md quotes it"},
    "tests/gt_bench/claims/test_table.py": {"asked here": "a value of the public key `said` in claims.yaml"},
    "tests/gt_bench/runtime/test_malloc.py": {"glibc, freed memory kept": "a value in records"},
    "tests/gt_bench/scheduling/test_local_queue.py": {'"say": "of another clone"': "a key of the protocol"},
    "tests/mutants/mutations.py": {"kept = (edges >= 0).all(0)": "quotes code"},
}


def texts(source: str) -> Iterator[tuple[int, str]]:
    """Yields (number, text) of lines of comments and strings, without code in backticks and names of arguments."""
    for token in tokenize.generate_tokens(io.StringIO(source).readline):
        if token.type not in (tokenize.COMMENT, tokenize.STRING):
            continue
        text = token.string
        if token.type == tokenize.STRING:
            if " " not in text:  # a key or a name
                continue
            if "f" in re.match(r"\w*", text)[0].lower():
                text = re.sub(r"\{[^{}]*\}", "{}", text)
        for number, line in enumerate(text.split("\n"), token.start[0]):
            yield number, re.sub(r"^\s*\*?\w+: |`[^`]*`", "", line)


def problems(path: str, source: str) -> list[str]:
    """Returns listed words in a file of Python or Markdown, one line each."""
    found = []
    for number, line in prose(source) if path.endswith(".md") else texts(source):
        for pattern, word in CHECKED:
            if (match := pattern.search(line)) and not any(text in line for text in EXCEPTIONS.get(path, ())):
                found.append(f"{path}:{number}: {match[0]!r}; write: {word}")
    return found


def files() -> list[Path]:
    """Returns the checked files, without this one, which quotes the words."""
    folders = ("gt_bench", "gt_models", "stages", "suites", "tools", "benchmarks", "tests")
    found = [path for folder in folders for path in sorted((ROOT / folder).rglob("*.py"))]
    return [path for path in found if path != Path(__file__)]


@pytest.mark.slow
def test_words():
    found = []
    for file in [*files(), *(page for page in PAGES if page.name not in QUOTING), ROOT / "CONTRIBUTING.md"]:
        found += problems(file.relative_to(ROOT).as_posix(), file.read_text(encoding="utf-8"))
    assert found == []


@pytest.mark.parametrize("path", EXCEPTIONS)
def test_exceptions_are_used(path):
    source = (ROOT / path).read_text(encoding="utf-8")
    lines = [line for _, line in (prose if path.endswith(".md") else texts)(source)]
    assert all(any(text in line for line in lines) for text in EXCEPTIONS[path])


@pytest.mark.parametrize("text", ["As the page says.\n", "| key | it is kept |\n"])
def test_pages_are_checked(text):
    assert problems("docs/x.md", text) != []
    assert problems("docs/x.md", f"`{text.strip()}`\n\n    {text}\n```\n{text}```\n") == []


@pytest.mark.parametrize(
    ("source", "word"),
    [
        ("# computed anew\n", "'anew'; write: again"),
        ('def f():\n    """Says what it did."""\n', "'Says'"),
        ('raise ValueError(f"no row {name}: it was kept")\n', "'kept'"),
        ('x = f"the number {anew} is new"\n', None),
        ('def f():\n    """Runs.\n\n    Args:\n        kept: `kept` is an argument.\n    """\n', None),
        ('x = {"kept": 1}\n', None),
    ],
)
def test_texts_are_checked_and_code_is_not(source, word):
    found = problems("x.py", source)
    assert word in found[0] if word else found == []
