"""Published numbers: entries of suites/PAPER/results.yaml by paper, table, method, dataset, metric and split.

Numbers are returned in raw units, as in records: a percentage becomes a fraction. `unit` is the published unit.
"""

import math
import os
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from typing import Literal

import yaml

from gt_bench.config.suite import load_suite
from gt_bench.papers import pair_counts
from gt_bench.schemas import Record, Settings
from gt_bench.utils.errors import nearest
from gt_bench.utils.paths import suite_folders, suite_name

RESULTS, FLAGS = "results.yaml", "flags.yaml"  # in the folder of a suite
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


class PublishedError(LookupError):
    """There is no such published number, or several; the message names the wrong key and the nearest entries."""


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
    unit: str
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
            raise PublishedError(f"{self.source}, {self.dataset}: {self.printed!r} is not a number")
        return self.mean

    @property
    def measured(self) -> bool:
        """Whether it is a cost on the authors' machine, which is shown next to ours without a verdict."""
        return self.metric in MEASURED

    def ours(self, record: Record) -> float | None:
        """Returns the value of a run for this number in raw units, None if the run does not have it."""
        if self.measured:
            key, factor = MEASURED[self.metric]
            return record["measured"][key] * factor
        if self.whole_in(record):
            return pair_counts.counted(self.dataset, self.metric, record)
        if self.split == "train":
            # published values of the training set are from the last training epoch (TokenGT's basis approximation)
            return record["deterministic"]["epochs"]["train_loss"][-1]
        scores = record["deterministic"]["test_metrics"] or {}
        return next((scores[name] for name in self._names() if name in scores), None)

    def whole_in(self, record: Record) -> bool:
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

    `edge_transformer` is accepted for `edge-transformer`, and our names of metrics for those of the file. `metric` and
    `split` are optional if there is only one. The test split is the default if it is among several.

    Raises:
        PublishedError: there is none or several. The message names the first wrong key and its nearest values, or the
            metrics and splits to choose from.
    """
    entries = read_entries(paper)
    wanted = {"paper": suite_name(paper), "table": table, "method": method, "dataset": dataset}
    if metric is not None:
        wanted["metric"] = METRIC_NAMES.get(metric, metric)
    if split is not None:
        wanted["split"] = split
    for number, (key, value) in enumerate(wanted.items()):
        found = [e for e in entries if e[key] == value]
        if not found:
            known = sorted({e[key] for e in entries})
            before = ", ".join(f"{k} {v!r}" for k, v in list(wanted.items())[:number])
            raise PublishedError(
                f"{RESULTS} has no {key} {value!r}{' under ' + before if before else ''}{_hint(value, known)}"
            )
        entries = found
    if split is None and len({e["split"] for e in entries}) > 1:
        entries = [e for e in entries if e["split"] == "test"] or entries
    if len(entries) > 1:
        choices = "; ".join(f"metric {e['metric']}, split {e['split']}" for e in entries)
        raise PublishedError(
            f"{RESULTS} has several numbers for {', '.join(wanted.values())}; choose one of: {choices}"
        )
    return _published(entries[0], read_flags(wanted["paper"]))


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
        raise PublishedError(f"{', '.join(missing)} of the reference is missing")
    if reference is None or _costs_alone(reference, dataset):
        return None
    return lookup(
        reference["paper"],
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
            raise PublishedError(f"{RESULTS} has no number at {also} of {reference['paper']}, {reference['table']}")
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
    entries, flags = read_entries(paper), read_flags(suite_name(paper))
    return [_published(entry, flags) for entry in entries]


def papers() -> dict[str, Path]:
    """Returns the folder of each suite with published numbers, by name.

    Raises:
        SuiteError: two suites have the same name.
    """
    return {name: folder for name, folder in suite_folders().items() if os.path.exists(f"{folder}/{RESULTS}")}


def files_state() -> tuple[object, ...]:
    """Returns what changes with the files of published numbers and the current folder: a key for caches.

    Raises:
        SuiteError: two suites have the same name.
    """
    files = [folder.absolute() / name for folder in papers().values() for name in (RESULTS, FLAGS)]
    return tuple((path, _stamp(path)) for path in files if path.exists())


def paper_titles() -> dict[str, str]:
    """Returns the title of each paper.

    Raises:
        RecipeError: a suite.yaml is invalid.
    """
    return {paper: load_suite(paper).title for paper in papers()}


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
    wanted["paper"] = suite_name(wanted["paper"])
    if "metric" in wanted:
        wanted["metric"] = METRIC_NAMES.get(wanted["metric"], wanted["metric"])
    entries = [e for e in read_entries(wanted["paper"]) if all(e[k] == v for k, v in wanted.items())]
    flags = read_flags(wanted["paper"]) if entries else []
    return [_published(entry, flags) for entry in entries]


# required keys of an entry of results.yaml, and defaults of optional keys
ENTRY_KEYS = ("table", "method", "dataset", "metric", "direction", "unit", "printed", "mean")
ENTRY_DEFAULTS: Settings = {"split": "test", "std": None, "runs": None, "oom": False, "own": False}


def read_entries(paper: str) -> list[Settings]:
    """Returns the entries of a paper's results.yaml, each with the name of the paper.

    Raises:
        PublishedError: the paper or the file does not exist, or the file is invalid.
    """
    known = papers()
    if (folder := known.get(name := suite_name(paper))) is None:
        if (suite := suite_folders().get(name)) is not None:
            raise PublishedError(f"{suite}: no {RESULTS}, and therefore no published numbers to compare with")
        raise PublishedError(f"no paper {name!r}{_hint(name, list(known))}")
    path = folder / RESULTS
    return _read(name, path, _stamp(path), ENTRY_KEYS)


def read_flags(paper: str) -> list[Settings]:
    """Returns the entries of a paper's flags.yaml, each with the name of the paper.

    Raises:
        PublishedError: the file is invalid.
    """
    path = papers()[paper] / FLAGS
    return _read(paper, path, _stamp(path), ("flag",)) if path.exists() else []


def _stamp(path: Path) -> tuple[int, int]:
    stat = path.stat()
    return stat.st_mtime_ns, stat.st_size


@lru_cache(maxsize=64)
def _read(paper: str, path: Path, _stamp: tuple[int, int], keys: tuple[str, ...]) -> list[Settings]:
    """Reads a list of mappings with these keys.

    Raises:
        PublishedError: the file is invalid.
    """
    try:
        # 300 KB: 0.1 s with libyaml, 1.5 s without
        content = yaml.load(path.read_text(encoding="utf-8"), getattr(yaml, "CSafeLoader", yaml.SafeLoader))
        entries = content["results"] if path.name == RESULTS else content or []
        if not isinstance(entries, list) or not all(isinstance(entry, dict) for entry in entries):
            raise ValueError("not a list of mappings")
        for number, entry in enumerate(entries, 1):
            if missing := [key for key in keys if key not in entry]:
                raise ValueError(f"entry {number}: {', '.join(missing)} is missing")
            if "paper" in entry:
                raise ValueError(f"entry {number}: unexpected key `paper`; the name of the folder is the paper")
    except (OSError, yaml.YAMLError, ValueError, KeyError, TypeError) as error:
        reason = " ".join(str(error).split())
        raise PublishedError(f"{path}: invalid ({reason}); fix it, or restore it: git checkout {path}") from None
    if path.name != RESULTS:
        return [{"paper": paper, **entry} for entry in entries]
    return [{"paper": paper, "canonical_method": entry["method"], **ENTRY_DEFAULTS, **entry} for entry in entries]


def _published(entry: Settings, flags: Sequence[Settings]) -> Published:
    """Returns the published number of an entry.

    Raises:
        PublishedError: values of the entry or keys of a flag are invalid.
    """
    try:
        return _published_entry(entry, flags)
    except (KeyError, TypeError, ValueError, AttributeError) as error:
        place = ", ".join(str(entry[k]) for k in ("paper", "table", "method", "dataset"))
        raise PublishedError(f"{RESULTS} or {FLAGS}: {place}: {type(error).__name__} {error}") from None


COPIED = (
    "paper",
    "table",
    "method",
    "dataset",
    "metric",
    "split",
    "direction",
    "unit",
    "printed",
    "runs",
    "oom",
    "own",
)


def _published_entry(entry: Settings, flags: Sequence[Settings]) -> Published:
    scale = 0.01 if entry["unit"] == "percent" else 1.0
    first = re.match(r"\d+(?:\.(\d+))?", entry["printed"])
    digits = len(first.group(1) or "") if first else 0
    return Published(
        **{key: entry[key] for key in COPIED},
        mean=_raw(entry["mean"], scale),
        std=_raw(entry["std"], scale),
        # counts are exact; other integers are rounded
        rounding=0.0 if entry["metric"] == pair_counts.COUNT else 0.5 * 10**-digits * scale,
        note=entry.get("note"),
        flags=tuple(f["flag"] for f in flags if all(entry[k] == v for k, v in f.items() if k != "flag")),
        canonical=entry["canonical_method"],
        averages_over=entry.get("averages_over", 1),
        std_ddof=_ddof(entry),
    )


def _ddof(entry: Settings) -> int | None:
    for one in load_suite(entry["paper"]).std_ddof:
        if entry["table"] in one.tables and (one.methods == "all" or entry["own"]):
            return one.ddof
    return None


def _raw(value: float | None, scale: float) -> float | None:
    return None if value is None else round(float(value) * scale, 12)


def _hint(value: str, known: list[str]) -> str:
    return nearest(value, known) or f"; known: {', '.join(map(repr, known[:12]))}"
