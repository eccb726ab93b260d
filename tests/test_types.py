"""Type checking (`make lint`) is off only for named kinds of errors of a module, never for a module or a line."""

import re

from tests.conftest import ROOT

HEAD = re.compile(r'^# mypy: disable-error-code="[a-z, -]+"$', re.M)


def test_only_named_kinds_of_errors_are_switched_off():
    texts = {
        path: path.read_text()
        for package in ("gt_bench", "gt_models", "stages")
        for path in (ROOT / package).rglob("*.py")
    }
    assert not [
        str(path)
        for path, text in texts.items()
        if re.search(r"^# mypy:", HEAD.sub("", text), re.M) or re.search(r"# type: ignore(?!\[)", text)
    ]
    assert "ignore_errors" not in (ROOT / "pyproject.toml").read_text()
