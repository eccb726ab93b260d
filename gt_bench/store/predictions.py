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
from dataclasses import dataclass, fields
from pathlib import Path

import numpy as np
import torch
from torch import Tensor

from gt_bench.schemas import Record, StoredPredictions
from gt_bench.store.run_store import Store, StoreError
from gt_bench.tasks.base import Task
from gt_bench.tasks.metrics import detached
from gt_bench.tasks.registry import create_task
from gt_bench.training.interfaces import Batches
from gt_bench.training.trainer import Examples
from gt_bench.utils.io import read_bytes, write_bytes

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

    output: Tensor
    target: Mapping[str, Tensor]
    batch: Mapping[str, np.ndarray]
    ids: np.ndarray | None
    nodes: np.ndarray | None

    @property
    def labels(self) -> Tensor:
        """The targets, if they are one tensor with a row per example.

        Raises:
            PredictionsError: they are not.
        """
        if "" not in self.target or len(self.target[""]) != len(self.output):
            raise PredictionsError(
                f"targets of this task are {', '.join(self.target)}, not one row per example; only metrics of all "
                "examples together can be computed"
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

    record: Record
    task: str
    loss: str | None
    level: str
    parts: Mapping[str, Part]

    def create_task(self, metric: str) -> Task:
        """Returns the task with another metric.

        Raises:
            KeyError: the task does not have this metric.
        """
        return create_task(self.task, metric, self.loss)

    def score(self, metric: str, part: str = "test", rows: Tensor | None = None) -> float:
        """Computes a metric again.

        Args:
            metric: name of a metric of the task.
            part: val or test.
            rows: index of the rows that count, for targets that are one tensor. None for all.

        Raises:
            KeyError: the task does not have this metric.
            ValueError: the metric is undefined on these targets.
        """
        task, of = self.create_task(metric), self.parts[part]
        if "" in of.target:
            output, target = (of.output, of.target[""]) if rows is None else (of.output[rows], of.labels[rows])
            return task.evaluate([output], [target])[metric]
        assert task.target_type is not None
        cut = {name: _split(of.output if name == "output" else of.target[name], at) for name, at in of.batch.items()}
        outputs, columns = cut.pop("output"), list(cut.items())
        targets = [task.target_type(**{name: values[i] for name, values in columns}) for i in range(len(outputs))]
        return task.evaluate(outputs, targets)[metric]


def _split(values: Tensor, starts: np.ndarray) -> list[Tensor]:
    return list(values.tensor_split(torch.as_tensor(starts[1:], dtype=torch.long)))


def pack(examples: Mapping[str, Examples], loader: Batches, task: str, loss: str | None, level: str) -> bytes:
    """Returns the bytes of a file. Equal content gives equal bytes on one machine.

    Args:
        examples: outputs and targets of the batches of each part.
        loader: the batches they were computed on.
        task: name of the task.
        loss: name of the loss. None for the default of the task.
        level: what a row of the output is: node or graph.
    """
    arrays: dict[str, np.ndarray] = {"about": np.array(json.dumps({"task": task, "loss": loss, "level": level}))}
    for part, (outputs, targets) in examples.items():
        arrays[f"{part}/output"] = detached(list(outputs)).numpy()
        if isinstance(targets[0], Tensor):
            arrays[f"{part}/target"] = detached(list(targets)).numpy()
        else:
            arrays[f"{part}/batch/output"] = _starts(outputs)
            for name in (field.name for field in fields(targets[0])):
                values = [getattr(target, name) for target in targets]
                if all(isinstance(value, Tensor) and value.dim() for value in values):
                    arrays[f"{part}/target/{name}"] = detached(values).numpy()
                    arrays[f"{part}/batch/{name}"] = _starts(values)
        if (ids := loader.order(part)) is not None:
            arrays[f"{part}/ids"] = ids.numpy().astype(np.int64)
            if loader.packed.header.split_kind == "graph":
                arrays[f"{part}/nodes"] = loader.packed.sizes[ids].numpy().astype(np.int32)
    file = io.BytesIO()
    np.savez_compressed(file, allow_pickle=False, **arrays)
    return file.getvalue()


def _starts(tensors: Sequence[Tensor]) -> np.ndarray:
    return np.concatenate([[0], np.cumsum([len(tensor) for tensor in tensors])[:-1]]).astype(np.int64)


def save(folder: Path, content: bytes) -> StoredPredictions:
    """Writes a file atomically, and returns its entry of the record.

    Raises:
        WriteError: the file cannot be written.
    """
    write_bytes(folder / FILE, content)
    return {"sha256": hashlib.sha256(content).hexdigest(), "bytes": len(content)}


def is_missing(record: Record, store: Store, limit_mib: float) -> bool:
    """Returns whether computing a run again would give predictions that the store does not have."""
    found = record.get("predictions")
    if record["deterministic"]["status"] != "ok" or record["deterministic"]["test"] is None:
        return False
    if not found:
        return limit_mib > 0
    if "sha256" in found:
        return not (store.folder(record["digest"]) / FILE).exists()
    return 0 < limit_mib >= found.get("left_out_mib", np.inf)


def load(cell: str, record: Record, store: Store, shipped: Path | None = None) -> Predictions:
    """Reads the predictions of a run from the store, or from the shipped file of its cell.

    Args:
        cell: name of the cell, for messages.
        record: record of the run.
        store: the run store.
        shipped: the shipped file of predictions of the cell.

    Raises:
        PredictionsError: there are none, the file is damaged, or it is not the one of the record.
    """
    seed, entry = record["deterministic"]["seed"], record.get("predictions") or {}
    again = f"`gt-bench train {cell} --predictions` computes the run again and stores them"
    if not (store.folder(record["digest"]) / "record.json").exists():
        again = (
            f"`gt-bench store import {cell}` copies its shipped records to the store, then {again} if the numbers are "
            "those of the record"
        )
    if "sha256" not in entry:
        why = entry.get("left_out") or "its run was computed without them"
        if "left_out_mib" in entry:
            raised = int(entry["left_out_mib"]) + 1
            again = f"set `run.predictions: {raised}` in params.yaml (MiB), then {again}"
        raise PredictionsError(f"{cell}: seed {seed} has no stored predictions: {why}; {again}")
    path = store.folder(record["digest"]) / FILE
    if path.exists():
        content, where = read_bytes(path), str(path)
    elif shipped is not None and shipped.exists() and (member := _members(shipped).get(record["digest"])) is not None:
        content, where = member, f"{shipped}: {record['digest']}.npz"
    else:
        raise PredictionsError(f"{path}: file not found: predictions of {cell}, seed {seed}; {again}")
    if (found := hashlib.sha256(content).hexdigest()) != entry["sha256"]:
        raise PredictionsError(
            f"{where}: has the sha256 {found[:12]}..., but its record has {entry['sha256'][:12]}...: it was edited or "
            f"damaged; delete it, then {again}"
        )
    return _read(content, record, where, again)


def _read(content: bytes, record: Record, where: str, again: str) -> Predictions:
    try:
        with np.load(io.BytesIO(content), allow_pickle=False) as file:
            arrays = {name: file[name] for name in file.files}
        about = json.loads(str(arrays.pop("about")))
        parts: dict[str, Part] = {}
        for part in PARTS:
            mine = {name[len(part) + 1 :]: array for name, array in arrays.items() if name.startswith(f"{part}/")}
            if not mine:
                continue
            target = {
                name.partition("/")[2]: torch.from_numpy(array)
                for name, array in mine.items()
                if name.partition("/")[0] == "target"
            }
            batch = {name.partition("/")[2]: array for name, array in mine.items() if name.startswith("batch/")}
            output = torch.from_numpy(mine["output"])
            parts[part] = Part(output, target, batch, mine.get("ids"), mine.get("nodes"))
        return Predictions(record, about["task"], about["loss"], about["level"], parts)
    except (OSError, ValueError, KeyError, TypeError, zipfile.BadZipFile) as error:
        raise PredictionsError(f"{where}: not a file of predictions ({error}); delete it, then {again}") from None


def same_value(computed: float, recorded: float) -> bool:
    """Returns whether a metric that is computed again from predictions is the recorded one."""
    return math.isclose(computed, recorded, rel_tol=RELATIVE, abs_tol=1e-9)


def shipped_predictions(record_path: Path, records: Sequence[Record]) -> list[Predictions]:
    """Reads the predictions next to a shipped file of records, in the order of the records that have some.

    Raises:
        PredictionsError: the file is damaged.
    """
    path = shipped_file(record_path)
    members = _members(path) if path.exists() else {}
    return [
        _read(members[record["digest"]], record, f"{path}: {record['digest']}.npz", "export the cell again")
        for record in records
        if record["digest"] in members
    ]


def shipped_file(record_path: Path) -> Path:
    """Returns the file of predictions next to a shipped file of records."""
    return record_path.with_name(record_path.name.removesuffix(".json.gz") + ".predictions.zip")


def ship(record_path: Path, records: Sequence[Record], store: Store) -> Path | None:
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
        entry, file = record.get("predictions") or {}, store.folder(record["digest"]) / FILE
        if "sha256" in entry and file.exists():
            if problem := problem_of(record, store):
                raise PredictionsError(problem)
            files[record["digest"]] = read_bytes(file)
    content = io.BytesIO()
    with zipfile.ZipFile(content, "w", zipfile.ZIP_STORED) as packed:
        for digest, one in sorted(files.items()):  # ZipInfo has a fixed date: equal files give equal bytes
            packed.writestr(zipfile.ZipInfo(f"{digest}.npz"), one)
    if not files or len(content.getvalue()) > MAX_SHIPPED:
        path.unlink(missing_ok=True)
        return None
    return write_bytes(path, content.getvalue())


def unpack(record_path: Path, records: Sequence[Record], store: Store) -> int:
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
        entry = (stored.get("predictions") if stored else None) or {}
        if not file.exists() and entry.get("sha256") == hashlib.sha256(content).hexdigest():
            write_bytes(file, content)
            count += 1
    return count


def shipped_problems(record_path: Path, records: Sequence[Record]) -> list[str]:
    """Returns what is wrong with the predictions next to a shipped file, one line each."""
    path = shipped_file(record_path)
    if not path.exists():
        return []
    try:
        members = _members(path)
    except PredictionsError as error:
        return [str(error)]
    expected = {record["digest"]: (record.get("predictions") or {}).get("sha256") for record in records}
    remedy = f"restore the file (`git checkout {path}`) or delete it"
    wrong = []
    for digest, content in members.items():
        if digest not in expected:
            wrong.append(f"{path}: {digest}.npz belongs to no record of {record_path.name}; {remedy}")
        elif hashlib.sha256(content).hexdigest() != expected[digest]:
            wrong.append(f"{path}: {digest}.npz has another sha256 than its record; {remedy}")
    return wrong


def problem_of(record: Record, store: Store) -> str | None:
    """Returns what is wrong with the predictions of a stored record, otherwise None. A missing file is no problem."""
    entry, path = record.get("predictions") or {}, store.folder(record["digest"]) / FILE
    if not path.exists() or "sha256" not in entry:
        return None
    if hashlib.sha256(read_bytes(path)).hexdigest() == entry["sha256"]:
        return None
    return f"{path}: has another sha256 than its record: it was edited or damaged; delete the file"


def _members(path: Path) -> dict[str, bytes]:
    """Reads the files of a zip archive: {digest: bytes}."""
    try:
        with zipfile.ZipFile(io.BytesIO(read_bytes(path))) as packed:
            if sum(info.file_size for info in packed.infolist()) > 4 * MAX_SHIPPED:
                raise ValueError("too large after decompression")
            return {name.removesuffix(".npz"): packed.read(name) for name in packed.namelist()}
    except (OSError, ValueError, zipfile.BadZipFile, NotImplementedError, RuntimeError) as error:
        raise PredictionsError(
            f"{path}: not an archive of predictions ({error}); restore the file (`git checkout {path}`) or delete it"
        ) from None
