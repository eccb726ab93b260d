"""README and docs/: commands parse, files and links exist, Python blocks compile, and the site builds.

Commands are parsed by their real parsers. A warning of the site builder is an error.
"""

import re
import shlex
import shutil
import subprocess
import sys
from importlib.util import find_spec

import pytest
import typer

from gt_bench.cli.app import app
from tests.conftest import ROOT
from tests.pages import PAGES, blocks

# placeholders for a name that the reader chooses
PLACEHOLDER = re.compile(r"^[A-Z_]+(/[A-Z_]+)*$|^\.\.\.$|NAME|SUITE|CELL|DATASET|ROW|\bmy_|_my_|\bmine\b")


def commands(text: str) -> list[list[str]]:
    """The commands of shell blocks and of code in the text, as words, without redirections and the like."""
    lines = [
        line for kind, block in blocks(text) if kind in ("", "console", "bash", "sh") for line in block.splitlines()
    ]
    lines += re.findall(r"`((?:gt-bench|python -m (?:stages|gt_bench)\.|make) [^`\n]+)`", text)
    found = []
    for line in lines:
        line = re.split(r"\s#|\s\||\s>|;|&&|\s2>", line.strip().removeprefix("$ "))[0]
        line = re.sub(r"^((?:[A-Z_]+=\S+\s+)+)", "", line)
        if re.match(r"(gt-bench|python|make|dvc|mlflow) ", line):
            found.append(shlex.split(line.replace("[", "").replace("]", "")))
    return found


ALL = sorted({(page.name, tuple(words)) for page in PAGES for words in commands(page.read_text())})


def test_commands_are_found():
    assert len(ALL) > 40
    assert ("mlflow.md", ("gt-bench", "diff", "embedded/chains/gcn")) in ALL


@pytest.mark.parametrize(
    ("page", "words"),
    [(p, w) for p, w in ALL if w[0] == "gt-bench"],
    ids=lambda value: value if isinstance(value, str) else " ".join(value),
)
def test_a_command_of_gt_bench_parses(page, words):
    """Parse with the real parser, without running the command."""
    command, arguments = (
        typer.main.get_command(app),
        ["1" if word == "N" else word for word in words[1:] if word != "..."],
    )
    context = command.make_context("gt-bench", [], resilient_parsing=True)
    while hasattr(command, "commands") and arguments and not arguments[0].startswith("-"):
        name = arguments.pop(0)
        assert name in command.commands, f"{page}: {' '.join(words)}: no command {name!r}"
        command = command.commands[name]
    if not arguments:  # only the name of the command, in a sentence
        return
    if not hasattr(command, "commands"):
        command.make_context(command.name, arguments, parent=context)
    else:
        assert all(argument in ("--help", "--version") for argument in arguments)


@pytest.mark.parametrize(
    ("page", "words"),
    [(p, w) for p, w in ALL if w[0] != "gt-bench"],
    ids=lambda value: value if isinstance(value, str) else " ".join(value),
)
def test_targets_modules_and_files_of_other_commands_exist(page, words):
    if words[0] == "make":
        targets = set(re.findall(r"^([\w-]+):", (ROOT / "Makefile").read_text(), re.M))
        assert {word for word in words[1:] if "=" not in word} <= targets, page
    elif words[:2] == ("python", "-m"):
        assert PLACEHOLDER.search(words[2]) or words[2].startswith("pytest") or find_spec(words[2]), (
            f"{page}: no module {words[2]}"
        )
    elif words[0] == "python":
        assert (ROOT / words[1]).is_file() or PLACEHOLDER.search(words[1]) or words[1].startswith("-"), (
            f"{page}: no file {words[1]}"
        )


@pytest.mark.slow
def test_the_site_builds_without_a_warning(tmp_path):
    pytest.importorskip("mkdocs")
    done = subprocess.run(
        [sys.executable, "-m", "mkdocs", "build", "--strict", "--quiet", "--site-dir", str(tmp_path / "site")],
        cwd=ROOT, capture_output=True, text=True, check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stdout + done.stderr
    assert (tmp_path / "site" / "mlflow" / "index.html").exists()
    page = (tmp_path / "site" / "index.html").read_text()
    assert not re.search(r'(?:src|href)="https?://(?!squidfunk)[^"]+\.(?:js|css|woff2?)"', page), (
        "the site asks another host for a file"
    )
    shutil.rmtree(tmp_path / "site")
