"""Logging to TensorBoard: event files in tensorboard/SUITE/DATASET/ROW/seed-N, with the metric names of MLflow.

The folder mirrors the current runs. Event files of a run that another one replaces are deleted, and a run whose files
are incomplete (after a kill, or because logging was off) is written from its record.
"""

import shutil
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from gt_bench.records.cell import CellResult
from gt_bench.records.run import RunRecord
from gt_bench.tracking.payload import hyperparameters, run_metrics
from gt_bench.utils.io import write_bytes

if TYPE_CHECKING:
    from torch.utils.tensorboard import SummaryWriter

ROOT = Path("tensorboard")
FLUSH_SECONDS = 10
COMPLETE = "complete"  # file that names the run, written after all its events


class TensorBoard:
    """Log one cell to TensorBoard.

    Args:
        cell: SUITE/DATASET/ROW.
    """

    def __init__(self, cell: str):
        self._root = ROOT / cell
        self._folders: dict[str, Path] = {}  # digest of a run -> folder
        self._writers: dict[str, SummaryWriter] = {}  # digest of a run -> open writer
        self._first: dict[str, int] = {}  # digest of a run -> first epoch that was logged here

    def start_seed(self, seed: int, digest: str) -> None:
        """Prepare the folder of a run that starts or resumes."""
        self._close_writer(digest)  # a run that ran out of memory starts a second time
        self._folders[digest] = folder = self._root / f"seed-{seed}"
        if any(path.suffix != f".{digest[:12]}" for path in folder.glob("*")):
            shutil.rmtree(folder)
        (folder / f"{COMPLETE}.{digest[:12]}").unlink(missing_ok=True)

    def log_epoch(self, digest: str, epoch: int, values: Mapping[str, float]) -> None:
        """Write the metrics of an epoch."""
        if digest not in self._writers:
            self._first.setdefault(digest, epoch)
            # readers drop what a killed process wrote from this epoch on
            self._writers[digest] = self._writer(digest, purge_step=epoch)
        for name, value in values.items():
            self._writers[digest].add_scalar(f"curve/{name}", value, epoch)

    def finish_seed(self, record: RunRecord) -> None:
        """Complete the event files of a run, with its results and hyperparameters."""
        from torch.utils.tensorboard.summary import hparams

        digest, run, metrics = record.digest, record.run, run_metrics(record)
        folder = self._folders.setdefault(digest, self._root / f"seed-{run.seed}")
        if [self._first.get(digest)] != run.epochs["epoch"][:1]:  # not all epochs were logged by this process
            self._close_writer(digest)
            shutil.rmtree(folder, ignore_errors=True)
        else:
            metrics = {name: points for name, points in metrics.items() if not name.startswith("curve/")}
        if digest not in self._writers:
            self._writers[digest] = self._writer(digest, purge_step=0)
        writer = self._writers[digest]
        for name, points in metrics.items():
            for step, value in points:
                writer.add_scalar(name, value, step)
        results = {name: points[-1][1] for name, points in metrics.items() if name.startswith(("test/", "val/"))}
        for summary in hparams(hyperparameters(run.recipe), results):
            writer._get_file_writer().add_summary(summary)
        self._close_writer(digest)
        write_bytes(folder / f"{COMPLETE}.{digest[:12]}", b"")

    def close(
        self, result: CellResult, records: Sequence[RunRecord],
        earlier: Sequence[tuple[CellResult, Sequence[RunRecord]]] = (), store: Path | None = None,
    ) -> None:  # fmt: skip
        """Write the runs of the result that have no complete event files, from their records."""
        for record in records:
            folder = self._root / f"seed-{record.run.seed}"
            if not (folder / f"{COMPLETE}.{record.digest[:12]}").exists():
                self.finish_seed(record)

    def _writer(self, digest: str, purge_step: int) -> "SummaryWriter":
        from torch.utils.tensorboard import SummaryWriter

        return SummaryWriter(
            str(self._folders[digest]),
            purge_step=purge_step,
            flush_secs=FLUSH_SECONDS,
            filename_suffix=f".{digest[:12]}",
        )

    def _close_writer(self, digest: str) -> None:
        if writer := self._writers.pop(digest, None):
            writer.close()
