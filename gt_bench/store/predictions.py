"""Outputs of a run on validation and test, stored next to its record, from which any metric can be computed again.

    store/<first two digits>/<digest>/predictions.npz      one run; its sha256 is in the record
    suites/SUITE/records/DATASET/ROW.predictions.zip       <digest>.npz of each shipped run, below 200 kB

Arrays, where P is `val` or `test`: `P/output` as the metrics read it, `P/target` or `P/target/FIELD`, `P/batch` (first
rows of the batches, if targets are not one tensor), `P/ids` (ids of nodes or graphs of the packed dataset) and
`P/nodes` (number of nodes of each of these graphs). `about` is JSON: task, loss and level. Nothing is unpickled.
"""

import hashlib
import io
import json
import math
import zipfile
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from gt_bench.records.run import RunRecord, StoredPredictions
from gt_bench.store.run_store import Store, StoreError
from gt_bench.tasks.registry import create_task
from gt_bench.utils.io import read_bytes, write_bytes

if TYPE_CHECKING:
    from gt_bench.tasks.base import Task

FILE = "predictions.npz"
MAX_SHIPPED = 200_000  # bytes of the file of a cell
RELATIVE = 1e-6  # of a metric that is computed again to the recorded one
PARTS = ("val", "test")


class PredictionsError(StoreError):
    """Predictions are missing or damaged. The message names the file or the cell, and the remedy."""


@dataclass(frozen=True)
class Part:
    """Outputs and targets of a run on one part of its split.

    Attributes:
        output: outputs, float [N, ...].
        target: {"": targets} if they are one tensor, otherwise {field of `Task.target_type`: values}.
        batch: {name as in `target`, or "output": first row of each batch}. Empty if targets are one tensor.
        ids: ids of nodes or graphs, [G]. None if rows do not follow from them.
        nodes: number of nodes of each graph of `ids`, [G]. None if ids are those of nodes.
    """

    output: np.ndarray
    target: Mapping[str, np.ndarray]
    batch: Mapping[str, np.ndarray]
    ids: np.ndarray | None
    nodes: np.ndarray | None

    @property
    def labels(self) -> np.ndarray:
        """The targets, if they are one tensor with a row per example.

        Raises:
            PredictionsError: they are not.
        """
        if "" not in self.target or len(self.target[""]) != len(self.output):
            raise PredictionsError(
                f"targets of this task are {', '.join(self.target)}, not one row per example",
                value=list(self.target),
                remedy="only metrics of all examples together can be computed",
            )
        return self.target[""]

    @property
    def graph_sizes(self) -> np.ndarray | None:
        """Number of nodes of the graph of each row of the output, [N]. None if rows are nodes of one graph."""
        if self.ids is None or self.nodes is None:
            return None
        if len(self.ids) == len(self.output):
            return self.nodes
        return np.repeat(self.nodes, self.nodes) if self.nodes.sum() == len(self.output) else None

    @property
    def example_ids(self) -> np.ndarray | None:
        """An id of each row of the output, [N]: two runs with equal ids and targets have the same examples."""
        if self.ids is None or self.nodes is None or len(self.ids) == len(self.output):
            return self.ids
        return np.repeat(self.ids, self.nodes) if self.nodes.sum() == len(self.output) else None

    def rows_of(self, other: "Part") -> np.ndarray | None:
        """Returns the rows of another part in the order of this one, [N]. None if the two have different examples."""
        if self.labels.shape != other.labels.shape:
            return None
        mine, theirs = self.example_ids, other.example_ids
        rows = np.arange(len(self.output))
        if mine is not None and theirs is not None and not np.array_equal(mine, theirs):
            order, their_order = np.argsort(mine, kind="stable"), np.argsort(theirs, kind="stable")
            if not np.array_equal(mine[order], theirs[their_order]):
                return None
            rows[order] = their_order
        return rows if np.array_equal(self.labels, other.labels[rows], equal_nan=True) else None


@dataclass(frozen=True)
class Predictions:
    """What a file contains.

    Attributes:
        record: record of the run.
        task: name of the task.
        loss: name of the loss. None for the default of the task.
        level: what a row of the output is: node or graph.
        parts: {"val" or "test": outputs and targets}.
    """

    record: RunRecord
    task: str
    loss: str | None
    level: str
    parts: Mapping[str, Part]

    def create_task(self, metric: str) -> "Task":
        """Returns the task with another metric. Loads torch.

        Raises:
            KeyError: the task does not have this metric.
        """
        return create_task(self.task, metric, self.loss)

    def score(
        self, metric: str, part: str = "test", rows: np.ndarray | None = None, columns: Sequence[int] | None = None
    ) -> float:
        """Computes a metric again. Loads torch.

        Args:
            metric: name of a metric of the task.
            part: val or test.
            rows: index of the rows that count, for targets that are one array. None for all.
            columns: index of the columns of outputs and targets that count, for the same. None for all.

        Raises:
            KeyError: the task does not have this metric.
            ValueError: the metric is undefined on these targets.
        """
        import torch  # takes a second, and only metrics need it

        task, of = self.create_task(metric), self.parts[part]
        if "" in of.target:
            output, target = (of.output, of.target[""]) if rows is None else (of.output[rows], of.labels[rows])
            if columns is not None:
                output, target = output[:, columns], target[:, columns]
            return task.evaluate([torch.from_numpy(output)], [torch.from_numpy(target)])[metric]
        assert task.target_type is not None
        cut = {
            name: list(map(torch.from_numpy, np.split(of.output if name == "output" else of.target[name], starts[1:])))
            for name, starts in of.batch.items()
        }
        outputs, fields = cut.pop("output"), list(cut.items())
        targets = [task.target_type(**{name: values[i] for name, values in fields}) for i in range(len(outputs))]
        return task.evaluate(outputs, targets)[metric]


def save(folder: Path, content: bytes) -> StoredPredictions:
    """Writes a file atomically, and returns its entry of the record.

    Raises:
        WriteError: the file cannot be written.
    """
    write_bytes(folder / FILE, content)
    return StoredPredictions(sha256=hashlib.sha256(content).hexdigest(), bytes=len(content))


def is_missing(record: RunRecord, store: Store, limit_mib: float) -> bool:
    """Returns whether computing a run again would give predictions that the store does not have."""
    found = record.predictions
    if record.run.status != "ok" or record.run.test is None:
        return False
    if found.sha256 is not None:
        return not (store.folder(record.digest) / FILE).exists()
    if found.left_out is None:
        return limit_mib > 0
    return found.left_out_mib is not None and 0 < limit_mib >= found.left_out_mib


def load(cell: str, record: RunRecord, store: Store, shipped: Path | None = None) -> Predictions:
    """Reads the predictions of a run from the store, or from the shipped file of its cell.

    Args:
        cell: name of the cell, for messages.
        record: record of the run.
        store: the run store.
        shipped: the shipped file of predictions of the cell.

    Raises:
        PredictionsError: there are none, the file is damaged, or it is not the one of the record.
    """
    seed, entry = record.run.seed, record.predictions
    again = f"`gt-bench train {cell} --predictions` computes the run again and stores them"
    if not (store.folder(record.digest) / "record.json").exists():
        again = (
            f"`gt-bench store import {cell}` copies its shipped records to the store, then {again} if the numbers are "
            "those of the record"
        )
    if entry.sha256 is None:
        why = entry.left_out or "its run was computed without them"
        if entry.left_out_mib is not None:
            raised = int(entry.left_out_mib) + 1
            again = f"set `run.predictions: {raised}` in params.yaml (MiB), then {again}"
        problem = f"seed {seed} has no stored predictions: {why}"
        raise PredictionsError(problem, place=cell, value=seed, remedy=again)
    path = store.folder(record.digest) / FILE
    if path.exists():
        content, file, place = read_bytes(path), path, ""
    elif shipped is not None and shipped.exists() and (member := _members(shipped).get(record.digest)) is not None:
        content, file, place = member, shipped, f"{record.digest}.npz"
    else:
        problem = f"file not found: predictions of {cell}, seed {seed}"
        raise PredictionsError(problem, file=path, value=seed, remedy=again)
    again = f"delete it, then {again}"
    if (found := hashlib.sha256(content).hexdigest()) != entry.sha256:
        recorded = f"its record has {entry.sha256[:12]}...: it was edited or damaged"
        problem = f"has the sha256 {found[:12]}..., but {recorded}"
        raise PredictionsError(problem, file=file, place=place, value=found, remedy=again)
    return _read(content, record, file, place, again)


def _read(content: bytes, record: RunRecord, file: Path, place: str, remedy: str) -> Predictions:
    try:
        with np.load(io.BytesIO(content), allow_pickle=False) as packed:
            arrays = {name: packed[name] for name in packed.files}
        about = json.loads(str(arrays.pop("about")))
        parts: dict[str, Part] = {}
        for part in PARTS:
            mine = {name[len(part) + 1 :]: array for name, array in arrays.items() if name.startswith(f"{part}/")}
            if not mine:
                continue
            target = {
                name.partition("/")[2]: array for name, array in mine.items() if name.partition("/")[0] == "target"
            }
            batch = {name.partition("/")[2]: array for name, array in mine.items() if name.startswith("batch/")}
            parts[part] = Part(mine["output"], target, batch, mine.get("ids"), mine.get("nodes"))
        return Predictions(record, about["task"], about["loss"], about["level"], parts)
    except (OSError, ValueError, KeyError, TypeError, zipfile.BadZipFile) as error:
        problem = f"not a file of predictions ({error})"
        raise PredictionsError(problem, file=file, place=place, remedy=remedy) from None


def same_value(computed: float, recorded: float) -> bool:
    """Returns whether a metric that is computed again from predictions is the recorded one."""
    return math.isclose(computed, recorded, rel_tol=RELATIVE, abs_tol=1e-9)


def shipped_predictions(record_path: Path, records: Sequence[RunRecord]) -> list[Predictions]:
    """Reads the predictions next to a shipped file of records, in the order of the records that have some.

    Raises:
        PredictionsError: the file is damaged.
    """
    path = shipped_file(record_path)
    members = _members(path) if path.exists() else {}
    return [
        _read(members[record.digest], record, path, f"{record.digest}.npz", "export the cell again")
        for record in records
        if record.digest in members
    ]


def shipped_file(record_path: Path) -> Path:
    """Returns the file of predictions next to a shipped file of records."""
    return record_path.with_name(record_path.name.removesuffix(".json.gz") + ".predictions.zip")


def ship(record_path: Path, records: Sequence[RunRecord], store: Store) -> Path | None:
    """Writes the predictions of all runs of a cell next to its shipped records, if they need less than `MAX_SHIPPED`.

    A file of an earlier export is removed otherwise.

    Returns:
        The file, or None.

    Raises:
        PredictionsError: a file of the store is not the one of its record.
        WriteError: the file cannot be written.
    """
    path, files = shipped_file(record_path), {}
    for record in records:
        file = store.folder(record.digest) / FILE
        if record.predictions.sha256 is not None and file.exists():
            if problem := problem_of(record, store):
                raise problem
            files[record.digest] = read_bytes(file)
    content = io.BytesIO()
    with zipfile.ZipFile(content, "w", zipfile.ZIP_STORED) as packed:
        for digest, one in sorted(files.items()):  # ZipInfo has a fixed date: equal files give equal bytes
            packed.writestr(zipfile.ZipInfo(f"{digest}.npz"), one)
    if not files or len(content.getvalue()) > MAX_SHIPPED:
        path.unlink(missing_ok=True)
        return None
    return write_bytes(path, content.getvalue())


def unpack(record_path: Path, records: Sequence[RunRecord], store: Store) -> int:
    """Puts shipped predictions into the store, for records that are there and have none. Returns how many.

    Raises:
        PredictionsError: the shipped file is damaged, see `shipped_problems`.
        WriteError: a file cannot be written.
    """
    if problems := shipped_problems(record_path, records):
        raise PredictionsError("\n".join(problems))
    path, count = shipped_file(record_path), 0
    members = _members(path) if path.exists() else {}
    for digest, content in members.items():
        file, stored = store.folder(digest) / FILE, store.get(digest)
        sha256 = stored.predictions.sha256 if stored else None
        if not file.exists() and sha256 == hashlib.sha256(content).hexdigest():
            write_bytes(file, content)
            count += 1
    return count


def shipped_problems(record_path: Path, records: Sequence[RunRecord]) -> list[str]:
    """Returns what is wrong with the predictions next to a shipped file, one line each."""
    path = shipped_file(record_path)
    if not path.exists():
        return []
    try:
        members = _members(path)
    except PredictionsError as error:
        return [str(error)]
    expected = {record.digest: record.predictions.sha256 for record in records}
    remedy = f"restore the file (`git checkout {path}`) or delete it"
    wrong = []
    for digest, content in members.items():
        if digest not in expected:
            wrong.append(f"{path}: {digest}.npz belongs to no record of {record_path.name}; {remedy}")
        elif hashlib.sha256(content).hexdigest() != expected[digest]:
            wrong.append(f"{path}: {digest}.npz has another sha256 than its record; {remedy}")
    return wrong


def problem_of(record: RunRecord, store: Store) -> PredictionsError | None:
    """Returns what is wrong with the predictions of a stored record, otherwise None. A missing file is no problem."""
    sha256, path = record.predictions.sha256, store.folder(record.digest) / FILE
    if not path.exists() or sha256 is None or hashlib.sha256(read_bytes(path)).hexdigest() == sha256:
        return None
    problem = "has another sha256 than its record: it was edited or damaged"
    return PredictionsError(problem, file=path, remedy="delete the file")


def _members(path: Path) -> dict[str, bytes]:
    """Reads the files of a zip archive: {digest: bytes}."""
    try:
        with zipfile.ZipFile(io.BytesIO(read_bytes(path))) as packed:
            if sum(info.file_size for info in packed.infolist()) > 4 * MAX_SHIPPED:
                raise ValueError("too large after decompression")
            return {name.removesuffix(".npz"): packed.read(name) for name in packed.namelist()}
    except (OSError, ValueError, zipfile.BadZipFile, NotImplementedError, RuntimeError) as error:
        remedy = f"restore the file (`git checkout {path}`) or delete it"
        raise PredictionsError(f"not an archive of predictions ({error})", file=path, remedy=remedy) from None
