"""The papers' own numbers: one entry of suites/PAPER/results.yaml by paper, table, method, dataset, metric and split.

Numbers come out in raw units (a percentage becomes a fraction), which is how records hold them; `unit` says how the paper prints them.
"""

import difflib
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
from gt_bench.utils.paths import suite_folders, suite_name

RESULTS, FLAGS = "results.yaml", "flags.yaml"  # in the folder of a suite
# our metric name -> the name in results.yaml, where they differ
METRIC_NAMES = {
    "balanced-accuracy": "weighted-accuracy",
    "f1-macro": "macro-f1",
    "f1-micro": "micro-f1",
    "partition-f1": "f1",
    "squared-error": "l2",
}

# printed metric -> the part of a record's measurements that it is held beside, and the factor to the printed unit; never judged
Cost = Literal["train_seconds_per_epoch", "peak_memory_mib"]
MEASURED: dict[str, tuple[Cost, float]] = {
    "seconds-per-epoch": ("train_seconds_per_epoch", 1.0),
    "gpu-memory-gb": ("peak_memory_mib", 2**20 / 1e9),
}


class PublishedError(LookupError):
    """No such printed number, or more than one; the message names the key at fault and the nearest entries."""


@dataclass(frozen=True)
class Published:
    """One printed cell. `mean`, `std` in raw units, None where the paper prints none (`oom`: it prints OOM instead of a number); `runs` is
    the number behind `std`, None where not said; `rounding`: half a unit of the mean's last printed digit, in raw units; `flags`: what is
    wrong with how it was made (flags.yaml); `canonical`: the method's name across the tables of a paper; `averages_over`: each of the
    `runs` behind `std` is itself an average of so many runs."""

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

    @property
    def number(self) -> float:
        """`mean`, where there is one. Raises PublishedError."""
        if self.mean is None:
            raise PublishedError(f"{self.source}, {self.dataset} prints {self.printed!r}, which is no number")
        return self.mean

    @property
    def measured(self) -> bool:
        """A cost on the authors' machine: shown beside ours, never judged."""
        return self.metric in MEASURED

    def ours(self, record: Record) -> float | None:
        """What the run of `record` has for this number, in raw units; None where it did not measure that."""
        if self.measured:
            key, factor = MEASURED[self.metric]
            return record["measured"][key] * factor
        if self.whole_in(record):
            return pair_counts.counted(self.dataset, self.metric, record)
        if self.split == "train":
            # printed for the training set is what training itself saw in its last epoch (TokenGT's basis approximation)
            return record["deterministic"]["epochs"]["train_loss"][-1]
        scores = record["deterministic"]["test_metrics"] or {}
        return next((scores[name] for name in self._names() if name in scores), None)

    def whole_in(self, record: Record) -> bool:
        """The run has all pairs that this number counts, whatever else was cut or did not come to an end."""
        return pair_counts.is_whole(self.dataset, record)

    @property
    def place(self) -> tuple[str, ...]:
        """The names by which `lookup` finds it."""
        return self.paper, self.table, self.method, self.dataset, self.metric, self.split

    @property
    def first_place(self) -> tuple[str, ...]:
        """The place where the paper publishes this number first. Tables of one paper often repeat a result, with more or fewer digits."""
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
        """The other methods' numbers of the same column: none of the paper's own, none that is only a cost or OOM."""
        column = {k: getattr(self, k) for k in ("paper", "table", "dataset", "metric", "split")}
        return [e for e in printed_at(column) if not e.own and e.mean is not None and not self.measured]

    @property
    def part(self) -> str:
        """What records call this number where the printed dataset is a part of the test set (jets of one flavour)."""
        return f"{self.metric}@{self.dataset}"

    def _names(self) -> list[str]:
        """What records may call this number."""
        names = pair_counts.names_of(self.dataset, self.metric)
        return names or [
            self.part,
            *(name for name, theirs in METRIC_NAMES.items() if theirs == self.metric),
            self.metric,
        ]

    @property
    def source(self) -> str:
        """Paper, table and row, as a reader looks it up."""
        where = f"{self.paper}, {self.table}, {self.method}"
        return where if self.split == "test" else f"{where}, {self.split} split"


def lookup(
    paper: str, table: str, method: str, dataset: str, metric: str | None = None, split: str | None = None
) -> Published:
    """The one published number with these names (`edge_transformer` is accepted for `edge-transformer`, our metric names for the file's).

    `metric` and `split` may be left out if they are clear: there is one, or, for the split, the test split is among them.

    Raises:
        PublishedError: naming the first key that matches nothing and its nearest values, or the metrics or splits to choose from.
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
            near = _nearest(value, sorted({e[key] for e in entries}))
            before = ", ".join(f"{k} {v!r}" for k, v in list(wanted.items())[:number])
            raise PublishedError(f"{RESULTS} has no {key} {value!r}{' under ' + before if before else ''}; {near}")
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
    """The number that a recipe's `published:` section points to; `dataset` and `metric` are the cell's and give way to the section's own.

    None for no reference, and for a place that prints costs alone (which are `further` numbers). Raises PublishedError as `lookup` does, and for
    a reference that names no place.
    """
    if reference is not None and (
        lacking := [k for k in ("paper", "table", "method") if not isinstance(reference.get(k), str)]
    ):
        raise PublishedError(f"the reference says no {', '.join(lacking)}")
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
    """Every other printed cell of a reference: further metrics of the same place, and the places under `also`, in the order of the file.

    Raises PublishedError for a place where nothing is printed.
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
            raise PublishedError(f"{RESULTS} prints nothing at {also} of {reference['paper']}, {reference['table']}")
        found += other
    return [entry for entry in dict.fromkeys(found) if entry != main]


def everything() -> list[Published]:
    """All published numbers, paper by paper, in the order of the files. Raises PublishedError for a file that cannot be read."""
    return [number for paper in papers() for number in published_of(paper)]


def published_of(paper: str) -> list[Published]:
    """The published numbers of a paper, in the order of the file. Raises PublishedError."""
    entries, flags = read_entries(paper), read_flags(suite_name(paper))
    return [_published(entry, flags) for entry in entries]


def papers() -> dict[str, Path]:
    """The folder of each suite with published numbers, by its name. Raises SuiteError."""
    return {name: folder for name, folder in suite_folders().items() if (folder / RESULTS).exists()}


def paper_titles() -> dict[str, str]:
    """The title of each paper. Raises RecipeError for a suite.yaml that cannot be read."""
    return {paper: load_suite(paper).title for paper in papers()}


def _costs_alone(reference: Settings, dataset: str) -> bool:
    place = {k: reference[k] for k in ("paper", "table", "method")} | {"dataset": reference.get("dataset") or dataset}
    found = printed_at(place | {"metric": reference.get("metric"), "split": reference.get("split")})
    return bool(found) and all(entry.measured for entry in found)


def printed_at(place: Mapping[str, str | None]) -> list[Published]:
    """Every printed number of a place: keys of an entry, of which those that are None, or not given, may have any value."""
    wanted = {k: v for k, v in place.items() if v is not None}
    wanted["paper"] = suite_name(wanted["paper"])
    if "metric" in wanted:
        wanted["metric"] = METRIC_NAMES.get(wanted["metric"], wanted["metric"])
    entries = [e for e in read_entries(wanted["paper"]) if all(e[k] == v for k, v in wanted.items())]
    flags = read_flags(wanted["paper"]) if entries else []
    return [_published(entry, flags) for entry in entries]


# what an entry of results.yaml must have, and what it has if it does not say otherwise
ENTRY_KEYS = ("table", "method", "dataset", "metric", "direction", "unit", "printed", "mean")
ENTRY_DEFAULTS: Settings = {"split": "test", "std": None, "runs": None, "oom": False, "own": False}


def read_entries(paper: str) -> list[Settings]:
    """The entries of a paper's results.yaml, each with the paper's name. Raises PublishedError for a paper without that file."""
    known = papers()
    if (folder := known.get(name := suite_name(paper))) is None:
        if (suite := suite_folders().get(name)) is not None:
            raise PublishedError(f"{suite} has no {RESULTS}: nothing is published there to compare with")
        raise PublishedError(f"no paper {name!r}; {_nearest(name, list(known))}")
    path = folder / RESULTS
    return _read(name, path, _stamp(path), ENTRY_KEYS)


def read_flags(paper: str) -> list[Settings]:
    """The entries of a paper's flags.yaml, each with the paper's name. Raises PublishedError for a file that cannot be read."""
    path = papers()[paper] / FLAGS
    return _read(paper, path, _stamp(path), ("flag",)) if path.exists() else []


def _stamp(path: Path) -> tuple[int, int]:
    stat = path.stat()
    return stat.st_mtime_ns, stat.st_size


@lru_cache(maxsize=64)
def _read(paper: str, path: Path, _stamp: tuple[int, int], keys: tuple[str, ...]) -> list[Settings]:
    """Raises PublishedError for a file that is not a list of mappings with these keys."""
    try:
        # 300 KB: 0.1 s with libyaml, 1.5 s without
        content = yaml.load(path.read_text(encoding="utf-8"), getattr(yaml, "CSafeLoader", yaml.SafeLoader))
        entries = content["results"] if path.name == RESULTS else content or []
        if not isinstance(entries, list) or not all(isinstance(entry, dict) for entry in entries):
            raise ValueError("not a list of mappings")
        for number, entry in enumerate(entries, 1):
            if missing := [key for key in keys if key not in entry]:
                raise ValueError(f"entry {number} has no {', '.join(missing)}")
            if "paper" in entry:
                raise ValueError(f"entry {number} has a key `paper`; the folder's name is the paper's")
    except (OSError, yaml.YAMLError, ValueError, KeyError, TypeError) as error:
        said = " ".join(str(error).split())
        raise PublishedError(f"{path} cannot be read ({said}); fix it, or get it again: git checkout {path}") from None
    if path.name != RESULTS:
        return [{"paper": paper, **entry} for entry in entries]
    return [{"paper": paper, "canonical_method": entry["method"], **ENTRY_DEFAULTS, **entry} for entry in entries]


def _published(entry: Settings, flags: Sequence[Settings]) -> Published:
    """Raises PublishedError for values of an entry, or keys of a flag, that cannot be."""
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
        # a count is printed exactly; a whole number of anything else was rounded
        rounding=0.0 if entry["metric"] == pair_counts.COUNT else 0.5 * 10**-digits * scale,
        note=entry.get("note"),
        flags=tuple(f["flag"] for f in flags if all(entry[k] == v for k, v in f.items() if k != "flag")),
        canonical=entry["canonical_method"],
        averages_over=entry.get("averages_over", 1),
    )


def _raw(value: float | None, scale: float) -> float | None:
    return None if value is None else round(float(value) * scale, 12)


def _nearest(value: str, known: list[str]) -> str:
    near = difflib.get_close_matches(value, known, 3, cutoff=0.4)
    return f"nearest: {', '.join(map(repr, near))}" if near else f"there are: {', '.join(map(repr, known[:12]))}"
