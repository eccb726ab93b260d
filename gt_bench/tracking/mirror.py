"""Mirror of one suite's results in an MLflow experiment; gt_bench/tracking/payload.py describes the content.

All functions may raise errors of MLflow; `tracking_errors` turns them into TrackingError.
"""

import contextlib
import json
import logging
import math
import os
import tempfile
import time
from collections import Counter, UserDict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from gt_bench.leaderboard.row import Row
from gt_bench.records.cell import CellResult
from gt_bench.records.run import RunRecord
from gt_bench.store.attempts import attempt_id
from gt_bench.store.run_store import Store, best_run
from gt_bench.tracking.payload import DIGEST_LENGTH, NOTE, Tracked, tracked_cell, tracked_run
from gt_bench.tracking.saved_views import described, views_of
from gt_bench.tracking.sqlite import OWN, TrackingError, absolute, file_of, ready_database, remedy
from gt_bench.tracking.uri import workspace_id
from gt_bench.utils.errors import missing
from gt_bench.utils.io import WriteError
from gt_bench.utils.tempfiles import sweep

if TYPE_CHECKING:
    from mlflow.entities import Run

# The default of MLflow is 7 retries of 120 s each.
PATIENCE = {
    "MLFLOW_HTTP_REQUEST_MAX_RETRIES": "1",
    "MLFLOW_HTTP_REQUEST_TIMEOUT": "5",
    "MLFLOW_HTTP_REQUEST_BACKOFF_FACTOR": "1",
}
# A connection from a pool would write to a database file that was deleted and created again.
NO_POOL = {"MLFLOW_SQLALCHEMYSTORE_POOLCLASS": "NullPool"}
QUIET = {"MLFLOW_DISABLE_TELEMETRY": "true", "MLFLOW_SUPPRESS_PRINTING_URL_TO_STDOUT": "true"}
PARENT, SEAL = "mlflow.parentRunId", "gt.seal"
WEIGHTS = "weights.safetensors"  # in the folder of a run; gt_bench/store/weights.py needs torch, this module does not


class Runs(UserDict[str, "Run"]):
    """MLflow runs by id, indexed by cell. The cell of a run is its tag gt.cell, which never changes."""

    def __init__(self, runs: Iterable["Run"] = ()):
        super().__init__()
        self._of: dict[str | None, set[str]] = {}
        for run in runs:
            self[run.info.run_id] = run

    def __setitem__(self, run_id: str, run: "Run") -> None:
        self._of.setdefault(run.data.tags.get("gt.cell"), set()).add(run_id)
        super().__setitem__(run_id, run)

    def __delitem__(self, run_id: str) -> None:
        self._of[self[run_id].data.tags.get("gt.cell")].discard(run_id)
        super().__delitem__(run_id)

    def of(self, cell: str) -> list["Run"]:
        """Return the runs of a cell, sorted by id."""
        return [self[run_id] for run_id in sorted(self._of.get(cell, ()))]


class Mirror:
    """The MLflow experiment of a suite. The tags gt.kind, gt.cell and gt.digest identify a run, never its id.

    In a tracking store that is not this workspace's own, only runs with the tag gt.workspace of this workspace exist
    for it. Otherwise each of two workspaces would delete the runs of the other.
    """

    def __init__(self, uri: str, suite: str):
        for key, value in (PATIENCE | NO_POOL | QUIET).items():
            os.environ.setdefault(key, value)
        from mlflow import MlflowClient

        # errors are raised and reported once; the import of MLflow sets these levels too
        for name in ("mlflow", "alembic", "sqlalchemy", "urllib3"):
            logging.getLogger(name).setLevel(logging.CRITICAL)

        database = file_of(uri)
        location = str((database.parent / "artifacts" / suite).resolve()) if database else None
        with ready_database(uri):
            self.client = MlflowClient(tracking_uri=absolute(uri), registry_uri=absolute(uri))
            self.experiment_id = self._experiment(suite, location)
        self.own = {} if absolute(uri) == absolute(OWN) else {"gt.workspace": workspace_id()}
        self.runs = Runs(self._all_runs())

    def put_views(self) -> None:
        """Set the description and the saved views of the experiment."""
        experiment = self.client.get_experiment(self.experiment_id)
        params = sorted({key for run in self.runs.values() for key in run.data.params})
        wanted = views_of(experiment.name, params, experiment.creation_time or 0) | {
            NOTE: described(experiment.name, self.experiment_id)
        }
        for key, value in wanted.items():
            if experiment.tags.get(key) != value:
                self.client.set_experiment_tag(self.experiment_id, key, value)

    def put_cell(
        self, result: CellResult, records: Sequence[RunRecord], row: Row | None = None,
        earlier: Sequence[tuple[CellResult, Sequence[RunRecord]]] = (), store: Store | None = None,
    ) -> None:  # fmt: skip
        """Complete the run of a cell, the runs of its records and those of earlier attempts; remove its other runs.

        Args:
            result: of the cell.
            records: of the result.
            row: of the leaderboard.
            earlier: results and records of earlier attempts.
            store: with the weights of best seeds.
        """
        kept: set[str] = set()
        done: set[str] = set()
        for attempt, its_records, current in [(result, records, True), *((*one, False) for one in reversed(earlier))]:
            own = [
                r
                for r in self.find("cell", result.cell)
                if SEAL not in r.data.tags or r.data.tags.get("gt.digest") == attempt_id(attempt)
            ]
            parent = self.put(
                tracked_cell(attempt, its_records, row if current else None, current),
                [r for r in own if r.info.run_id not in kept],
            )
            kept.add(parent)
            best = best_run(its_records)
            for record in [r for r in its_records if r.digest not in done]:
                done.add(record.digest)
                is_best = best is not None and best.digest == record.digest
                weights = store.folder(record.digest) / WEIGHTS if store and is_best else None
                spec = tracked_run(attempt, record, current, is_best, weights)
                kept.add(self.put(spec, self.find("run", result.cell, record.digest), parent))
        for run in [r for r in self.runs.of(result.cell) if r.info.run_id not in kept]:
            self.delete(run.info.run_id)

    def drop_other_cells(self, cells: set[str]) -> None:
        """Delete the runs of cells that are not in `cells`, except running ones."""
        for run in list(self.runs.values()):
            if (
                run.data.tags.get("gt.kind")
                and run.data.tags.get("gt.cell") not in cells
                and run.info.status != "RUNNING"
            ):
                self.delete(run.info.run_id)

    def put(self, spec: Tracked, existing: Sequence["Run"], parent: str | None = None) -> str:
        """Return the id of the only run with exactly the content of `spec`; other existing runs are deleted.

        Args:
            spec: the content.
            existing: runs that may have this content, or that can be completed. If there is none, a run is created.
            parent: id of the parent run.
        """
        tags = spec.tags | self.own | ({PARENT: parent} if parent else {})
        for run in existing:
            if self._is_whole(run, spec, tags) or self._fill(run, spec, tags):
                break
        else:
            run = self.create(
                spec.name, {k: tags[k] for k in ("gt.kind", "gt.cell", "gt.digest", PARENT) if k in tags}, spec.start
            )
            self._fill(run, spec, tags)
        for other in existing:
            if other.info.run_id != run.info.run_id:
                self.delete(other.info.run_id)
        return run.info.run_id

    def find(self, kind: str, cell: str, digest: str | None = None) -> list["Run"]:
        """Return the runs of a cell and kind (with this digest), complete ones first, then by age."""
        wanted = {"gt.kind": kind, "gt.cell": cell} | ({"gt.digest": digest} if digest else {})
        found = [r for r in self.runs.of(cell) if wanted.items() <= r.data.tags.items()]
        return sorted(found, key=lambda r: (SEAL not in r.data.tags, r.info.start_time, r.info.run_id))

    def create(self, name: str, tags: Mapping[str, str], start: int | None = None) -> "Run":
        """Create a run, which MLflow shows as running. `start`: milliseconds since 1970."""
        run = self.client.create_run(self.experiment_id, start_time=start, tags=dict(tags) | self.own, run_name=name)
        self.runs[run.info.run_id] = run
        return run

    def delete(self, run_id: str) -> None:
        """Mark a run as deleted in MLflow, and remove it from `runs`."""
        self.client.delete_run(run_id)
        self.runs.pop(run_id, None)

    def history(self, run: "Run") -> dict[str, list[tuple[int, float]]]:
        """Return metric -> all its points, [(step, value)]."""
        return {
            k: [(m.step, m.value) for m in self.client.get_metric_history(run.info.run_id, k)] for k in run.data.metrics
        }

    def log(
        self,
        run_id: str,
        params: Mapping[str, str] | None = None,
        metrics: Sequence[tuple[str, float, int, int]] = (),
        tags: Mapping[str, str] | None = None,
    ) -> None:
        """Write to a run, in as few requests as the limits of MLflow allow.

        Args:
            run_id: of the run.
            params: name -> value.
            metrics: (name, value, milliseconds, step).
            tags: name -> value.
        """
        from mlflow.entities import Metric, Param, RunTag

        pairs = [Param(k, v) for k, v in (params or {}).items()]
        points = [Metric(*m) for m in metrics]
        notes = [RunTag(k, v) for k, v in (tags or {}).items()]
        while pairs or points or notes:
            self.client.log_batch(run_id, metrics=points[:800], params=pairs[:100], tags=notes[:50], synchronous=True)
            points, pairs, notes = points[800:], pairs[100:], notes[50:]

    def log_dataset(self, run_id: str, name: str, digest: str) -> None:
        """Set the packed dataset as input of a run."""
        from mlflow.entities import Dataset, DatasetInput, InputTag

        source = json.dumps({"uri": f"data/packed/{name}", "sha256": digest})
        profile = json.dumps({"sha256": digest})
        dataset = Dataset(name=name, digest=digest[:DIGEST_LENGTH], source_type="local", source=source, profile=profile)
        self.client.log_inputs(run_id, [DatasetInput(dataset, [InputTag("mlflow.data.context", "train")])])

    def _experiment(self, suite: str, location: str | None) -> str:
        from mlflow.exceptions import MlflowException

        experiment = self.client.get_experiment_by_name(suite)
        if experiment is None:
            try:
                # with the tag MLflow opens its view for training, not the one for language models
                tags = {"mlflow.experimentKind": "custom_model_development"}
                return self.client.create_experiment(suite, artifact_location=location, tags=tags)
            except MlflowException:
                # another process may have created it on a server
                experiment = self.client.get_experiment_by_name(suite)
                if experiment is None:
                    raise
        if experiment.lifecycle_stage == "deleted":
            self.client.restore_experiment(experiment.experiment_id)
        return experiment.experiment_id

    def _is_whole(self, run: "Run", spec: Tracked, tags: Mapping[str, str]) -> bool:
        """Return whether a run has the seal and nothing in the search result contradicts `spec`; this needs no request.

        Manual changes within a metric history or among the artifacts are not detected.
        """
        last = {k: max(points, key=lambda p: p[0])[1] for k, points in spec.metrics.items()}
        return (
            run.data.tags.get(SEAL) == spec.seal
            and run.info.status == spec.status
            and run.data.params == spec.params
            and {k: repr(float(v)) for k, v in run.data.metrics.items()} == {k: repr(v) for k, v in last.items()}
            and tags.items() <= run.data.tags.items()
            and _datasets(run) == _expected_datasets(spec)
        )

    def _fill(self, run: "Run", spec: Tracked, tags: Mapping[str, str]) -> bool:
        """Add what is missing in `run`; return False without a change if it has content that cannot be removed."""
        run_id, points, logged = run.info.run_id, _countable(spec.metrics), _countable(self.history(run))
        if (
            logged - points
            or not run.data.params.items() <= spec.params.items()
            or not _datasets(run) <= _expected_datasets(spec)
        ):
            return False
        missing = [(k, float(v), _moment(spec, step), step) for k, step, v in (points - logged).elements()]
        params = {k: v for k, v in spec.params.items() if k not in run.data.params}
        self.log(run_id, params, missing, {k: v for k, v in tags.items() if run.data.tags.get(k) != v})
        if spec.dataset and not _datasets(run):
            self.log_dataset(run_id, *spec.dataset)
        for key in run.data.tags:
            if key.startswith("gt.") and key not in tags and key != SEAL:
                self.client.delete_tag(run_id, key)
        self._put_artifacts(run_id, spec)
        if run.info.run_name != spec.name:
            self.client.update_run(run_id, name=spec.name)
        # a run that was tracked live keeps its start, which is precise to the millisecond
        self.client.set_terminated(
            run_id, spec.status, spec.end and max(spec.end, run.info.start_time + spec.end - (spec.start or spec.end))
        )
        self.client.set_tag(run_id, SEAL, spec.seal)
        self.runs[run_id] = self.client.get_run(run_id)
        return True

    def _put_artifacts(self, run_id: str, spec: Tracked) -> None:
        root = self._folder(run_id)
        if root:  # temporary files of a killed upload, which MLflow hides and never removes
            sweep(root, everywhere=True, older_than=-math.inf)
        folders = {name.rpartition("/")[0] for name in spec.artifacts}
        sizes = {a.path: a.file_size for folder in folders for a in self.client.list_artifacts(run_id, folder or None)}
        for name, content in spec.artifacts.items():
            with tempfile.TemporaryDirectory() as temporary:
                path = content if isinstance(content, Path) else Path(temporary, name.rpartition("/")[2])
                if not isinstance(content, Path):
                    path.write_bytes(content())
                if sizes.get(name) == path.stat().st_size or (path is content and self._linked(run_id, name, path)):
                    continue
                self.client.log_artifact(run_id, str(path), name.rpartition("/")[0] or None)

    def _linked(self, run_id: str, name: str, path: Path) -> bool:
        """Try to link a file of the store into the local artifacts, to save disk space; return whether it worked."""
        root = self._folder(run_id)
        if root is None:
            return False
        try:
            (root / name).parent.mkdir(parents=True, exist_ok=True)
            (root / name).unlink(missing_ok=True)
            os.link(path, root / name)
        except OSError:  # another file system
            return False
        return True

    def _folder(self, run_id: str) -> Path | None:
        """Return the folder of the run's artifacts; None if they are not local."""
        root = Path(self.runs[run_id].info.artifact_uri.removeprefix("file://"))
        return root if root.is_absolute() else None

    def _all_runs(self) -> Iterator["Run"]:
        token, mine = None, " and ".join(f"tags.`{tag}` = '{value}'" for tag, value in self.own.items())
        while True:
            page = self.client.search_runs([self.experiment_id], mine, max_results=1000, page_token=token)
            yield from page
            token = page.token
            if not token:
                return


@contextlib.contextmanager
def tracking_errors(uri: str) -> Iterator[None]:
    """Turn errors of the tracking store inside the block into TrackingError."""
    try:
        from mlflow.exceptions import MlflowException
        from sqlalchemy.exc import SQLAlchemyError
    except ImportError as error:
        raise TrackingError(str(missing(error, "tracking"))) from error
    try:
        yield
    except (MlflowException, SQLAlchemyError, WriteError, OSError, ImportError) as error:
        text = " ".join(str(error).split()).rstrip(".")
        raise TrackingError((text if len(text) <= 400 else f"{text[:400]} ...") + remedy(uri, text)) from error


def _countable(metrics: Mapping[str, Sequence[tuple[int, float]]]) -> Counter[tuple[str, int, str]]:
    # as text, so that NaN equals NaN
    return Counter((k, step, repr(float(value))) for k, points in metrics.items() for step, value in points)


def _moment(spec: Tracked, step: int) -> int:
    """Return the time of a step in milliseconds, interpolated linearly between start and end of the run."""
    if spec.start is None or spec.end is None:
        return int(time.time() * 1000)
    last = max((s for points in spec.metrics.values() for s, _ in points), default=0)
    return spec.end if step == 0 or last == 0 else spec.start + (spec.end - spec.start) * step // last


def _datasets(run: "Run") -> set[tuple[str, str]]:
    return {(i.dataset.name, i.dataset.digest) for i in run.inputs.dataset_inputs} if run.inputs else set()


def _expected_datasets(spec: Tracked) -> set[tuple[str, str]]:
    return {(spec.dataset[0], spec.dataset[1][:DIGEST_LENGTH])} if spec.dataset else set()
