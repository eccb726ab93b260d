"""Progress of a cell: a bar on a terminal, plain lines elsewhere (a log, DVC, CI)."""

import sys
import time
from collections.abc import Mapping
from typing import Self

from gt_bench.schemas import Record

PLAIN_SECONDS = 15.0


class Progress:
    """Counts epochs over all runs of a cell, of which several may be under way: `run` names one, without it the last that started. Use as a
    context manager. `bar`: False for plain lines in any case."""

    def __init__(self, title: str, total_epochs: int, bar: bool = True):
        self.title, self.total = title, total_epochs
        self.bar = None
        if bar and sys.stderr.isatty():
            from tqdm import tqdm

            self.bar = tqdm(total=total_epochs, desc=title, unit="epoch", dynamic_ncols=True)
        self.run, self.done_before, self._last = "", 0, time.monotonic()
        self._begun, self._stored = self._last, 0  # the latter: epochs that cost nothing
        self.under_way: dict[str, tuple[int, int]] = {}  # run -> (its epochs, those done)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        if self.bar is not None:
            self.bar.close()

    def start_run(self, run: str, epochs: int) -> None:
        """A run of so many epochs is under way."""
        self.run = run
        self.under_way[run] = (epochs, 0)

    def epoch(self, epoch: int, values: dict[str, float], run: str | None = None) -> None:
        """So many epochs of the run are over; a line at most every `PLAIN_SECONDS` where there is no bar."""
        run = self.run if run is None else run
        epochs, _ = self.under_way[run]
        self.under_way[run] = (epochs, epoch)
        shown = " ".join(f"{k} {v:.4g}" for k, v in values.items() if k != "lr")
        if self.bar is not None:
            self.bar.set_postfix_str(f"{run} {shown}", refresh=False)
            self.bar.update(self.done_before + sum(done for _, done in self.under_way.values()) - self.bar.n)
        elif time.monotonic() - self._last >= PLAIN_SECONDS:
            self._last = time.monotonic()
            print(f"{self.title} {run} epoch {epoch}/{epochs} {shown}{self._left()}", flush=True)

    def finish_trial(self, outcome: str, values: Mapping[str, object]) -> None:
        """The last run was a search's trial with these values."""
        self._finish(
            self.run, f"{self.title} {self.run}: {outcome} with {', '.join(f'{k}={v}' for k, v in values.items())}"
        )

    def finish_run(self, record: Record, computed: bool, run: str | None = None) -> None:
        """Says the result of a run. `computed`: False where it was in the store."""
        run, result = self.run if run is None else run, record["deterministic"]
        self._stored += 0 if computed else self.under_way[run][0]
        line = f"{self.title} {run}: {result['status']}"
        if result["test"] is not None:
            line += f", {result['metric']} test {result['test']:.4f}"
            if result["val"] is not None:  # a protocol may have no validation
                line += f" val {result['val']:.4f} at epoch {result['best_epoch']}"
        elif result["error"]:
            line += f", {result['error']}"
        self._finish(run, line + (f" ({record['measured']['seconds']:.1f} s)" if computed else " (from the store)"))

    def say(self, line: str) -> None:
        """Prints a line above the bar."""
        print(line, flush=True) if self.bar is None else self.bar.write(line)

    def _left(self) -> str:
        """How far the cell is and how long it will take at the pace so far, as the bar of a terminal says it."""
        computed = self.done_before + sum(done for _, done in self.under_way.values()) - self._stored
        left = self.total - self._stored - computed
        if not (computed and left):
            return ""
        seconds = (time.monotonic() - self._begun) * left / computed
        return f" ({100 * (self.total - left) // self.total} % of the cell, {_span(seconds)} left)"

    def _finish(self, run: str, line: str) -> None:
        self.done_before += self.under_way.pop(run, (0, 0))[0]
        if self.bar is not None:
            self.bar.update(self.done_before + sum(done for _, done in self.under_way.values()) - self.bar.n)
        self.say(line)


def _span(seconds: float) -> str:
    minutes = round(seconds / 60)
    return f"{seconds:.0f} s" if seconds < 90 else f"{minutes} min" if minutes < 90 else f"{seconds / 3600:.1f} h"
