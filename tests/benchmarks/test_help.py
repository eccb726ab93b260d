"""`python benchmarks/NAME.py --help` describes the output and duration of each script, and measures nothing."""

import importlib
import re
import sys

import pytest

from tests.conftest import ROOT

SCRIPTS = sorted(
    path.stem
    for path in (ROOT / "benchmarks").glob("*.py")
    if '"__main__"' in path.read_text() and path.stem != "measured_process"
)  # other scripts start measured_process.py


@pytest.mark.slow
@pytest.mark.parametrize("name", SCRIPTS)
def test_help_states_what_it_prints_and_how_long_it_takes(name, capsys, monkeypatch):
    script = importlib.import_module(f"benchmarks.{name}")
    monkeypatch.setattr(sys, "argv", [f"benchmarks/{name}.py", "--help"])
    with pytest.raises(SystemExit) as ended:
        script.main()
    shown = capsys.readouterr().out
    assert ended.value.code == 0
    assert f"python benchmarks/{name}.py" in shown
    assert re.search(r"^Prints: \w.+\.$", shown, re.M)
    assert re.search(r"^Takes: \w.+\.$", shown, re.M)
