"""Progress of a cell: a bar on a terminal, plain lines elsewhere (a log, DVC, CI)."""

import sys
import time
from typing import Any, Self

PLAIN_SECONDS = 15.0


class Progress:
    """Counts epochs over all runs of a cell. Use as a context manager."""

    def __init__(self, title: str, total_epochs: int):
        self.title, self.total = title, total_epochs
        self.bar = None
        if sys.stderr.isatty():
            from tqdm import tqdm

            self.bar = tqdm(total=total_epochs, desc=title, unit="epoch", dynamic_ncols=True)
        self.run, self.run_epochs, self.done_before, self._last = "", 0, 0, time.monotonic()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: Any) -> None:
        if self.bar is not None:
            self.bar.close()

    def start_run(self, run: str, epochs: int) -> None:
        self.run, self.run_epochs = run, epochs

    def epoch(self, epoch: int, values: dict[str, float]) -> None:
        shown = " ".join(f"{k} {v:.4g}" for k, v in values.items() if k != "lr")
        if self.bar is not None:
            self.bar.set_postfix_str(f"{self.run} {shown}", refresh=False)
            self.bar.update(self.done_before + epoch - self.bar.n)
        elif time.monotonic() - self._last >= PLAIN_SECONDS:
            self._last = time.monotonic()
            print(f"{self.title} {self.run} epoch {epoch}/{self.run_epochs} {shown}", flush=True)

    def finish_trial(self, outcome: str, values: dict[str, Any]) -> None:
        self._finish(f"{self.title} {self.run}: {outcome} with {', '.join(f'{k}={v}' for k, v in values.items())}")

    def finish_run(self, record: dict[str, Any], computed: bool) -> None:
        result = record["deterministic"]
        line = f"{self.title} {self.run}: {result['status']}"
        if result["test"] is not None:
            line += f", {result['metric']} test {result['test']:.4f}"
            if result["val"] is not None:  # a protocol may have no validation
                line += f" val {result['val']:.4f} at epoch {result['best_epoch']}"
        elif result["error"]:
            line += f", {result['error']}"
        self._finish(line + (f" ({record['measured']['seconds']:.1f} s)" if computed else " (from the store)"))

    def _finish(self, line: str) -> None:
        self.done_before += self.run_epochs
        if self.bar is not None:
            self.bar.update(self.done_before - self.bar.n)
        print(line, flush=True) if self.bar is None else self.bar.write(line)
