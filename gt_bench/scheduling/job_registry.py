"""The jobs that sweeps have handed to Slurm, in store/sweep/submitted.jsonl, and what each has said."""

import json
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import cast

from gt_bench.scheduling.subprocess_job import Line
from gt_bench.schemas import Settings
from gt_bench.store.run_store import Store

Run = tuple[str, str, int | None]  # cell, what is cut of it as JSON, seed; None: its search


@dataclass(frozen=True)
class Submitted:
    """A job in Slurm's hands. `share`: of how many jobs of its array may run at once; `lines`: the file of what it says."""

    id: str
    lines: str
    share: int
    name: str
    limits: str
    seeds: tuple[int, ...]

    @property
    def array(self) -> str:
        """The id of its array."""
        return self.id.partition("_")[0]

    @property
    def runs(self) -> list[Run]:
        """What it computes."""
        return [(self.name, self.limits, seed) for seed in self.seeds or (None,)]

    def said(self) -> list[Line]:
        """What it has said so far."""
        return cast(list[Line], _objects(Path(self.lines)))


def register(store: Store, jobs: Sequence[Submitted]) -> None:
    """Notes jobs for every other sweep of this store."""
    with _file(store).open("a", encoding="utf-8") as file:
        file.writelines(f"{json.dumps(asdict(job))}\n" for job in jobs)


def registered(store: Store) -> list[Submitted]:
    """Every job that was noted, in whatever state it is now."""
    found = []
    for content in _objects(_file(store)):
        try:
            found.append(Submitted(**content | {"seeds": tuple(content["seeds"])}))
        except (TypeError, KeyError):  # a line of something else names no job
            continue
    return found


def _file(store: Store) -> Path:
    return store.root / "sweep" / "submitted.jsonl"


def _objects(path: Path) -> list[Settings]:
    """One JSON object a line; none of a line that a full disk, a kill or a node that died cut short."""
    found = []
    for text in path.read_text(encoding="utf-8").splitlines() if path.exists() else []:
        try:
            found.append(json.loads(text))
        except ValueError:
            continue
    return found
