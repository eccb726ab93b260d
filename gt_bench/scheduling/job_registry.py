"""The jobs that sweeps have submitted to Slurm, in store/sweep/submitted.jsonl, and the output of each."""

import json
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import cast

from gt_bench.scheduling.job import JobLine
from gt_bench.scheduling.planner import CellSeed
from gt_bench.store.run_store import Store
from gt_bench.utils.json_types import Settings


@dataclass(frozen=True)
class Submitted:
    """A job that was submitted to Slurm.

    `share` is how many jobs of its array may run at once; `lines` is the file with its output.
    """

    id: str
    lines: str
    share: int
    name: str
    seeds: tuple[int, ...]

    @property
    def array(self) -> str:
        """The id of the array of jobs."""
        return self.id.partition("_")[0]

    @property
    def runs(self) -> list[CellSeed]:
        """The runs that the job computes, or its search."""
        return [(self.name, seed) for seed in self.seeds or (None,)]

    def output(self) -> list[JobLine]:
        """Return the lines of its output so far."""
        return cast(list[JobLine], _objects(Path(self.lines)))


def register(store: Store, jobs: Sequence[Submitted]) -> None:
    """Append jobs to the file, for other sweeps of this store."""
    with _file(store).open("a", encoding="utf-8") as file:
        file.writelines(f"{json.dumps(asdict(job))}\n" for job in jobs)


def registered(store: Store) -> list[Submitted]:
    """Return all jobs of the file, whatever their state."""
    jobs = []
    for content in _objects(_file(store)):
        try:
            jobs.append(Submitted(**content | {"seeds": tuple(content["seeds"])}))
        except (TypeError, KeyError):  # the line does not describe a job
            continue
    return jobs


def _file(store: Store) -> Path:
    return store.root / "sweep" / "submitted.jsonl"


def _objects(path: Path) -> list[Settings]:
    """Return the JSON object of each line; lines cut short by a full disk or a kill are ignored."""
    objects = []
    for text in path.read_text(encoding="utf-8").splitlines() if path.exists() else []:
        try:
            objects.append(json.loads(text))
        except ValueError:
            continue
    return objects
