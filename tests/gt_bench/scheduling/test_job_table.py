"""The live table of the jobs of a sweep."""

import io

from gt_bench.scheduling.job_table import SHOWN, job_table


class Terminal(io.StringIO):
    def isatty(self):
        return True


def test_on_a_terminal_the_first_jobs_are_shown_and_elsewhere_nothing_is(monkeypatch, capsys):
    rows = [
        [f"{number}_0", "running" if number < 2 else "pending", "n1", f"cell{number} [seed 0]", ""]
        for number in range(SHOWN + 5)
    ]
    with job_table() as update:
        update(rows)
    assert capsys.readouterr().out == ""
    terminal = Terminal()
    monkeypatch.setattr("sys.stdout", terminal)
    monkeypatch.setenv("COLUMNS", "120")
    with job_table() as update:
        update(rows)
    shown = terminal.getvalue()
    assert f"2 jobs running, {SHOWN + 3} waiting" in shown
    assert f"cell{SHOWN - 1} [seed 0]" in shown
    assert f"cell{SHOWN} " not in shown
