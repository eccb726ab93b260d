"""Published numbers: entries of suites/PAPER/results.yaml by paper, table, method, dataset, metric and split.

Numbers are returned in raw units, as in records: a percentage becomes a fraction. `unit` is the published unit.
"""

import math
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import Literal, NamedTuple

from gt_bench.config.suite import Deviations, load_suite
from gt_bench.papers import pair_counts
from gt_bench.papers.results_file import (
    FLAGS,
    RESULTS,
    PublishedError,
    folder_of,
    hint,
    papers,
    read_entries,
    read_flags,
    state_of,
)
from gt_bench.papers.units import Unit
from gt_bench.records.run import RunRecord
from gt_bench.utils.json_types import Settings

# {our name of a metric: name in results.yaml}, if they differ
METRIC_NAMES = {
    "balanced-accuracy": "weighted-accuracy",
    "f1-macro": "macro-f1",
    "f1-micro": "micro-f1",
    "partition-f1": "f1",
    "squared-error": "l2",
}

# {published cost: (key of a record's measurements, factor to the published unit)}; costs have no verdicts
Cost = Literal["train_seconds_per_epoch", "peak_memory_mib"]
MEASURED: dict[str, tuple[Cost, float]] = {
    "seconds-per-epoch": ("train_seconds_per_epoch", 1.0),
    "gpu-memory-gb": ("peak_memory_mib", 2**20 / 1e9),
}


@dataclass(frozen=True)
class Published:
    """One published number.

    Attributes:
        paper: suite of the paper.
        table: name of the table.
        method: row of the table.
        dataset: column of the table.
        metric: metric, by its name in results.yaml.
        split: split that was evaluated.
        direction: "max" or "min".
        unit: published unit.
        printed: text of the table cell.
        mean: mean in raw units. None if no number is published.
        std: standard deviation in raw units, None if not published.
        runs: number of runs, None if not published.
        rounding: half a unit of the last published digit of the mean, in raw units.
        oom: whether OOM is published instead of a number.
        own: whether the method is the paper's own.
        note: comment in results.yaml.
        flags: problems of the experiment (flags.yaml).
        canonical: name of the method across the tables of a paper.
        averages_over: number of runs that each of the `runs` values is an average of.
        std_ddof: 0 if `std` is the population, 1 if it is the sample deviation (suite.yaml), None if that is unknown.
    """

    paper: str
    table: str
    method: str
    dataset: str
    metric: str
    split: str
    direction: str
    unit: Unit
    printed: str
    mean: float | None
    std: float | None
    runs: int | None
    rounding: float
    oom: bool
    own: bool
    note: str | None
    flags: tuple[str, ...] = ()
    canonical: str = ""
    averages_over: int = 1
    std_ddof: int | None = None

    @property
    def largest_std(self) -> float | None:
        """Largest sample deviation that `std` can mean, None if it is not published."""
        if self.std is None or not self.runs or self.std_ddof == 1:
            return self.std
        return self.std * math.sqrt(self.runs / max(self.runs - 1, 1))

    @property
    def number(self) -> float:
        """`mean` if there is one.

        Raises:
            PublishedError: there is none.
        """
        if self.mean is None:
            place = f"{self.source}, {self.dataset}"
            raise PublishedError(f"{self.printed!r} is not a number", place=place, value=self.printed)
        return self.mean

    @property
    def remarks(self) -> tuple[str, ...]:
        """Problems of the experiment, and the comment."""
        return (*self.flags, self.note) if self.note else self.flags

    @property
    def measured(self) -> bool:
        """Whether it is a cost on the authors' machine, which is shown next to ours without a verdict."""
        return self.metric in MEASURED

    def ours(self, record: RunRecord) -> float | None:
        """Returns the value of a run for this number in raw units, None if the run does not have it."""
        if self.measured:
            key, factor = MEASURED[self.metric]
            return getattr(record.measured, key) * factor
        if self.whole_in(record):
            return pair_counts.counted(self.dataset, self.metric, record)
        if self.split == "train":
            # published values of the training set are from the last training epoch (TokenGT's basis approximation)
            return record.run.epochs["train_loss"][-1]
        scores = record.run.test_metrics
        return next((scores[name] for name in self._names() if name in scores), None)

    def whole_in(self, record: RunRecord) -> bool:
        """Returns whether the run has all pairs that this number counts, even if other parts of the run are missing."""
        return pair_counts.is_whole(self.dataset, record)

    @property
    def place(self) -> tuple[str, ...]:
        """Arguments of `lookup` for this number."""
        return self.paper, self.table, self.method, self.dataset, self.metric, self.split

    @property
    def first_place(self) -> tuple[str, ...]:
        """Place where the paper publishes this number first. Tables often repeat a result with other digits."""
        if self.mean is None:
            return self.place
        same = {key: getattr(self, key) for key in ("paper", "dataset", "metric", "split")}
        for entry in printed_at(same):
            if entry.canonical != self.canonical or entry.mean is None:
                continue
            if abs(entry.mean - self.mean) <= entry.rounding + self.rounding + 1e-12:
                return entry.place
        return self.place

    def rivals(self) -> list["Published"]:
        """Returns the numbers of other papers' methods in the same column, without costs and OOM."""
        column = {k: getattr(self, k) for k in ("paper", "table", "dataset", "metric", "split")}
        return [e for e in printed_at(column) if not e.own and e.mean is not None and not self.measured]

    @property
    def part(self) -> str:
        """Name of this number in records, if the published dataset is a part of the test set (jets of one flavour)."""
        return f"{self.metric}@{self.dataset}"

    def _names(self) -> list[str]:
        """Returns possible names of this number in records."""
        names = pair_counts.names_of(self.dataset, self.metric)
        return names or [
            self.part,
            *(name for name, theirs in METRIC_NAMES.items() if theirs == self.metric),
            self.metric,
        ]

    @property
    def source(self) -> str:
        """Paper, table and row, as text."""
        where = f"{self.paper}, {self.table}, {self.method}"
        return where if self.split == "test" else f"{where}, {self.split} split"


def lookup(
    paper: str, table: str, method: str, dataset: str, metric: str | None = None, split: str | None = None
) -> Published:
    """Returns the only published number with these names.

    Our names of metrics are accepted for those of the file. `metric` and `split` are optional if there is only one. The
    test split is the default if it is among several.

    Raises:
        PublishedError: there is none or several. The message names the first wrong key and its nearest values, or the
            metrics and splits to choose from.
    """
    found = published_of(paper)
    wanted = {"paper": paper, "table": table, "method": method, "dataset": dataset}
    if metric is not None:
        wanted["metric"] = METRIC_NAMES.get(metric, metric)
    if split is not None:
        wanted["split"] = split
    for count, (key, value) in enumerate(wanted.items()):
        known = sorted({getattr(one, key) for one in found})
        if value not in known:
            before = ", ".join(f"{k} {v!r}" for k, v in list(wanted.items())[:count])
            problem = f"{RESULTS} has no {value!r}{' under ' + before if before else ''}{hint(value, known)}"
            raise PublishedError(problem, place=key, value=value)
        found = [one for one in found if getattr(one, key) == value]
    if split is None and len({one.split for one in found}) > 1:
        found = [one for one in found if one.split == "test"] or found
    if len(found) > 1:
        choices = [f"metric {one.metric}, split {one.split}" for one in found]
        problem = f"{RESULTS} has several numbers for {', '.join(wanted.values())}"
        raise PublishedError(problem, value=choices, remedy=f"choose one of: {'; '.join(choices)}")
    return found[0]


def resolve(reference: Settings | None, dataset: str, metric: str | None) -> Published | None:
    """Returns the number that a recipe's section `published:` refers to.

    Args:
        reference: the section.
        dataset: dataset of the cell, unless the section has one.
        metric: metric of the cell, unless the section has one.

    Returns:
        None if there is no reference, or if only costs are published at its place (they are `further` numbers).

    Raises:
        PublishedError: as for `lookup`, or the reference is incomplete.
    """
    if reference is not None and (
        missing := [k for k in ("paper", "table", "method") if not isinstance(reference.get(k), str)]
    ):
        raise PublishedError("is missing", place=missing[0])
    if reference is None or _costs_alone(reference, dataset):
        return None
    return lookup(
        reference["paper"].replace("_", "-"),  # some shipped records name edge_transformer
        reference["table"],
        reference["method"],
        reference.get("dataset") or dataset,
        reference.get("metric") or metric,
        reference.get("split"),
    )


def further(reference: Settings | None, dataset: str, metric: str | None) -> list[Published]:
    """Returns all other published numbers of a reference: further metrics of the same place, and the places in `also`.

    They are in the order of the file.

    Raises:
        PublishedError: nothing is published at a place.
    """
    if reference is None:
        return []
    main = resolve(reference, dataset, metric)
    split = main.split if main else reference.get("split")
    place = {k: reference[k] for k in ("paper", "table", "method")} | {
        "dataset": reference.get("dataset") or dataset,
        "split": split,
    }
    found = printed_at(place) if main is None or not reference.get("metric") else []
    for also in reference.get("also") or ():
        other = printed_at(place | {k: v for k, v in also.items() if v is not None} | {"split": also.get("split")})
        if len({entry.split for entry in other}) > 1:
            other = [entry for entry in other if entry.split == split]
        if not other:
            problem = f"{RESULTS} has no number at {also} of {reference['paper']}, {reference['table']}"
            raise PublishedError(problem, place="also", value=also)
        found += other
    return [entry for entry in dict.fromkeys(found) if entry != main]


def everything() -> list[Published]:
    """Returns all published numbers, paper by paper, in the order of the files.

    Raises:
        PublishedError: a file is invalid.
    """
    return [number for paper in papers() for number in published_of(paper)]


def published_of(paper: str) -> list[Published]:
    """Returns the published numbers of a paper, in the order of the file.

    Raises:
        PublishedError: the file is missing or invalid.
    """
    return list(numbers_of(paper).numbers)


def _costs_alone(reference: Settings, dataset: str) -> bool:
    place = {k: reference[k] for k in ("paper", "table", "method")} | {"dataset": reference.get("dataset") or dataset}
    found = printed_at(place | {"metric": reference.get("metric"), "split": reference.get("split")})
    return bool(found) and all(entry.measured for entry in found)


def printed_at(place: Mapping[str, str | None]) -> list[Published]:
    """Returns all published numbers of a place.

    Args:
        place: keys of an entry. A key that is missing or None matches any value.
    """
    wanted = {k: v for k, v in place.items() if v is not None}
    wanted["paper"] = wanted["paper"].replace("_", "-")  # some shipped records name edge_transformer
    if "metric" in wanted:
        wanted["metric"] = METRIC_NAMES.get(wanted["metric"], wanted["metric"])
    found = numbers_of(wanted["paper"])
    numbers = found.of_dataset.get(wanted["dataset"], ()) if "dataset" in wanted else found.numbers
    return [one for one in numbers if all(getattr(one, k) == v for k, v in wanted.items())]


class Numbers(NamedTuple):
    """The published numbers of a paper in the order of the file, all of them and those of each dataset."""

    numbers: tuple[Published, ...]
    of_dataset: Mapping[str, list[Published]]

    @classmethod
    def of(cls, numbers: Sequence[Published]) -> "Numbers":
        """Groups numbers by their dataset."""
        of_dataset: dict[str, list[Published]] = {}
        for number in numbers:
            of_dataset.setdefault(number.dataset, []).append(number)
        return cls(tuple(numbers), of_dataset)


def numbers_of(paper: str) -> Numbers:
    """Returns the published numbers of a paper.

    Raises:
        PublishedError: the file is missing or invalid.
    """
    return _published(paper, state_of(folder_of(paper)))


@lru_cache(maxsize=64)
def _published(paper: str, _state: tuple[object, ...]) -> Numbers:
    """Returns the published numbers of a paper.

    Cached: it takes up to 5 ms, and a board asks for 500 numbers by their place, the page for 3,000.

    Raises:
        PublishedError: values of an entry or keys of a flag are invalid.
    """
    flags, deviations = read_flags(paper), load_suite(paper).std_ddof
    found: list[Published] = []
    for entry in read_entries(paper):
        try:
            found.append(published_entry(entry, flags, deviations))
        except (KeyError, TypeError, ValueError, AttributeError) as error:
            place = ", ".join(str(entry[k]) for k in ("paper", "table", "method", "dataset"))
            problem = f"{type(error).__name__} {error}"
            raise PublishedError(problem, file=f"{RESULTS} or {FLAGS}", place=place) from None
    return Numbers.of(found)


COPIED = (
    "paper",
    "table",
    "method",
    "dataset",
    "metric",
    "split",
    "direction",
    "printed",
    "runs",
    "oom",
    "own",
)


def published_entry(entry: Settings, flags: Sequence[Settings], deviations: Sequence[Deviations]) -> Published:
    """Returns the number of an entry of results.yaml, with the flags and deviations of its paper."""
    scale = 0.01 if entry["unit"] == "percent" else 1.0
    first = re.match(r"\d+(?:\.(\d+))?", entry["printed"])
    digits = len(first.group(1) or "") if first else 0
    return Published(
        **{key: entry[key] for key in COPIED},
        unit=Unit(entry["unit"]),
        mean=_raw(entry["mean"], scale),
        std=_raw(entry["std"], scale),
        # counts are exact; other integers are rounded
        rounding=0.0 if entry["metric"] == pair_counts.COUNT else 0.5 * 10**-digits * scale,
        note=entry.get("note"),
        flags=tuple(f["flag"] for f in flags if all(entry[k] == v for k, v in f.items() if k != "flag")),
        canonical=entry["canonical_method"],
        averages_over=entry.get("averages_over", 1),
        std_ddof=next(
            (of.ddof for of in deviations if entry["table"] in of.tables and (of.methods == "all" or entry["own"])),
            None,
        ),
    )


def _raw(value: float | None, scale: float) -> float | None:
    return None if value is None else round(float(value) * scale, 12)
