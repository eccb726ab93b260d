"""Progress of a cell: a bar on a terminal and in a notebook, plain lines elsewhere (a log, DVC, CI)."""

import sys
import time
from collections.abc import Mapping
from typing import Self

from gt_bench.records.run import RunRecord
from gt_bench.utils.format import duration

PLAIN_SECONDS = 15.0


class Progress:
    """Count epochs over all runs of a cell, several of which may run at the same time. Use it as a context manager.

    In the methods `run` names a run; the default is the run that started last.

    Args:
        title: of the bar or the lines.
        total_epochs: of all runs.
        bar: False for plain lines everywhere.
    """

    def __init__(self, title: str, total_epochs: int, bar: bool = True):
        self.title, self.total = title, total_epochs
        self.bar = None
        if bar and (sys.stderr.isatty() or type(sys.stderr).__module__.startswith("ipykernel.")):
            from tqdm import tqdm

            self.bar = tqdm(total=total_epochs, desc=title, unit="epoch", dynamic_ncols=True)
        self.run, self.done_before, self._last = "", 0, time.monotonic()
        self._stored = 0  # epochs of runs from the store
        self._first: tuple[float, int] | None = None  # when the first epoch had been computed, and how many then
        self.running: dict[str, tuple[int, int]] = {}  # run -> (all epochs, finished epochs)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        if self.bar is not None:
            self.bar.close()

    def start_run(self, run: str, epochs: int) -> None:
        """Report that a run with this number of epochs starts."""
        self.run = run
        self.running[run] = (epochs, 0)

    def epoch(self, epoch: int, values: dict[str, float], run: str | None = None) -> None:
        """Report finished epochs of a run; without a bar this prints at most one line every `PLAIN_SECONDS`."""
        run = self.run if run is None else run
        epochs, _ = self.running[run]
        self.running[run] = (epochs, epoch)
        shown = epoch_text(values)
        if self._first is None:  # it compiles and loads: the time left is estimated from the later ones
            self._first = time.monotonic(), self._done() - self._stored
            if self.bar is not None:
                self.bar.reset()
                self.bar.initial = self.bar.n = self._done()
        if self.bar is not None:
            self.bar.set_postfix_str(f"{run} {shown}", refresh=False)
            self.bar.update(self._done() - self.bar.n)
        elif time.monotonic() - self._last >= PLAIN_SECONDS:
            self._last = time.monotonic()
            print(f"{self.title} {run} epoch {epoch}/{epochs} {shown}{self._left()}", flush=True)

    def finish_trial(self, outcome: str, values: Mapping[str, object]) -> None:
        """Report that the last run, a trial of a search with these values, has ended."""
        self._finish(
            self.run, f"{self.title} {self.run}: {outcome} with {', '.join(f'{k}={v}' for k, v in values.items())}"
        )

    def finish_run(self, record: RunRecord, computed: bool, run: str | None = None) -> None:
        """Report the result of a run; `computed` is False if the result was in the store."""
        run, result = self.run if run is None else run, record.run
        self._stored += 0 if computed else self.running[run][0]
        line = f"{self.title} {run}: {result.status}"
        if result.test is not None:
            line += f", {result.metric} test {result.test:.4f}"
            if result.val is not None:  # a protocol may have no validation
                line += f" val {result.val:.4f} at epoch {result.best_epoch}"
        elif result.error:
            line += f", {result.error}"
        self._finish(run, line + (f" ({record.measured.seconds:.1f} s)" if computed else " (from the store)"))

    def say(self, line: str) -> None:
        """Print a line above the bar."""
        print(line, flush=True) if self.bar is None else self.bar.write(line)

    def _left(self) -> str:
        """Return how much of the cell is done and the time left at the speed since the first epoch."""
        first, before = self._first or (0.0, 0)
        computed = self._done() - self._stored - before
        left = self.total - self._done()
        if not (computed and left):
            return ""
        seconds = (time.monotonic() - first) * left / computed
        return f" ({100 * (self.total - left) // self.total} % of the cell, {duration(seconds)} left)"

    def _done(self) -> int:
        return self.done_before + sum(done for _, done in self.running.values())

    def _finish(self, run: str, line: str) -> None:
        self.done_before += self.running.pop(run, (0, 0))[0]
        if self.bar is not None:
            self.bar.update(self._done() - self.bar.n)
        self.say(line)


def epoch_text(values: Mapping[str, float]) -> str:
    """Return the values of an epoch on one line, without the learning rate."""
    return " ".join(f"{name} {value:.4g}" for name, value in values.items() if name != "lr")
