"""The rows of a cell: statistics of its records, the published numbers and the verdicts on them.

Numbers in rows are raw units (a percentage is a fraction), as in records; `unit` is the unit for display, and only the
display (`gt_bench/leaderboard/columns.py`) converts. Equal records give equal rows.
"""

import math
import statistics
from collections import Counter
from collections.abc import Sequence
from typing import cast

from gt_bench.config.cuts import PARTS, cut_in
from gt_bench.config.verdict_settings import Rules
from gt_bench.leaderboard.expectations import with_expectation
from gt_bench.leaderboard.verdicts import printed_number, with_verdict
from gt_bench.leaderboard.words import status_of
from gt_bench.papers.published import Published, PublishedError, further
from gt_bench.papers.units import PERCENT, mean_and_std
from gt_bench.records.state import CellState, Ended
from gt_bench.schemas import COLUMNS, EnsembleSummary, Record, Result, Row, SearchSummary
from gt_bench.stats.verdict import STD_DDOF
from gt_bench.store.shipped_files import contribution_of
from gt_bench.utils.versions import version_text

CHOSEN_ON_TEST = (
    "! the epoch was chosen on the test split, as for the published number: compare it with that number alone; it "
    "decides no claim and is in no ranking"
)


def rows_of(
    result: Result, records: Sequence[Record], problems: Sequence[str] = (), rules: Rules | None = None
) -> list[Row]:
    """Returns the rows of a cell with their verdicts: its metric first, then further published numbers."""
    rows = [with_expectation(with_verdict(summarise(result, records, problems), result, rules), rules)]
    try:
        others = further(result.get("published"), result["dataset"], result.get("metric"))
    except PublishedError as error:
        if str(error) not in " ".join(rows[0]["notes"]):
            rows[0]["notes"].append(f"published number not found: {error}")
        others = []
    for printed in others:
        row = summarise(result, records, problems, printed)
        if row["values"] or not row["runs"]:
            rows.append(with_verdict(row, result, rules, printed))
    return rows


def modified_records(records: Sequence[Record]) -> list[Record]:
    """Returns the records of code that was changed without raising a version."""
    return [record for record in records if "modified" in record["deterministic"]["digests"]]


def summarise(
    result: Result,
    records: Sequence[Record],
    problems: Sequence[str] = (),
    printed: Published | None = None,
) -> Row:
    """Returns the row of a cell without its verdict: statistics of its records.

    `mean` and `std` (population, `std_ddof` 0) are over the runs that ended well, `runs` counts them, `seeds` counts
    the requested ones. Seconds and memory are the median and the maximum over the runs.

    Args:
        result: result of the cell.
        records: its records.
        problems: why further records could not be read, added to the reason.
        printed: another published number to compare with, instead of the number of the cell.
    """
    row = cast(Row, dict.fromkeys(COLUMNS))  # unknown values are None
    row |= {"cell": result["cell"], "dataset": result["dataset"], "model": result["model"]}
    row |= {"metric": result.get("metric"), "direction": result.get("direction")}
    if printed:
        part = f" ({printed.dataset})" if printed.dataset != result["dataset"] else ""
        row |= {"metric": printed.metric + part, "direction": printed.direction}
    notes = list(result.get("notes") or ())
    on_test = (result.get("recipe") or {}).get("select") == "test"
    if on_test:
        notes.append(CHOSEN_ON_TEST)
    published = printed or printed_number(result, notes)
    # a run that met its time limit has the counts over the pairs that were done
    whole = [
        r
        for r in records
        if published and published.whole_in(r) and r["deterministic"]["status"] in ("ok", "timed-out")
    ]
    good = [r for r in records if r["deterministic"]["status"] == "ok" or r in whole]
    seeds, contributed = len(result.get("seeds") or ()), contribution_of(records)
    failures = Counter(r["deterministic"]["status"] for r in records if r not in good)
    reasons = [reason] if (reason := result.get("reason")) else []
    modified = modified_records(records)
    imported = result.get("imported")
    row["state"] = CellState(
        ended=Ended(result["status"]), wanted=seeds, done=len(good), failed=dict(failures), unreadable=len(problems),
        modified=bool(modified), stale=list(imported["stale"]) if imported else [],
    )  # fmt: skip
    row |= {"runs": len(good), "seeds": seeds}
    row |= {
        "reduced": [
            line for line in result.get("reduced") or () if not (whole and len(whole) == len(good) and _of_parts(line))
        ],
        "notes": [*([contributed] if contributed else []), *notes, *_not_unique(records)],
        "contributed": contributed,
        "flags": [],
        "chosen_on_test": on_test,
        "values": [],
        "std_ddof": STD_DDOF,
        "digests": [r["digest"] for r in records],
    }
    row["reason"] = "; ".join([*reasons, *problems]) or None
    if published:
        row["flags"] = list(published.flags)
        row |= {"published_mean": published.mean, "published_std": published.std, "published_runs": published.runs}
        row |= {"published_printed": published.printed, "published_source": published.source}
        row["published_place"] = list(published.place)
    if published and published.note:
        row["notes"].append(f"the published number: {published.note}")
    if search := result.get("search"):
        row["notes"].append(_search_note(search))
        if ensemble := search.get("ensemble"):
            row["ensemble"] = ensemble
            row["notes"].append(_ensemble_note(ensemble, row["metric"]))
    if modified:
        versions = version_text(modified[0]["deterministic"]["versions"], modified=True)
        row["notes"].append(f"computed by code that was changed without raising a version ({versions})")
    if imported:
        stale = f"; stale when it was imported: {', '.join(imported['stale'])}" if imported.get("stale") else ""
        row["notes"].append(f"imported: shipped record of commit {(imported.get('commit') or 'unknown')[:12]}{stale}")
    scaled = (result.get("recipe") or {}).get("targets") and row["metric"] in ("mae", "mse", "rmse")
    own = "percent" if row["metric"] in PERCENT else "deviations" if scaled else "none"
    row["unit"] = published.unit if published else own
    if good:
        # the published dataset may be a part of the test set
        of_part = published is not None and all(
            published.part in (r["deterministic"]["test_metrics"] or {}) for r in good
        )
        values = [
            published.ours(r) if published and (printed or of_part or r in whole) else r["deterministic"]["test"]
            for r in good
        ]
        if published and of_part:
            row["metric"] = f"{published.metric} ({published.dataset})"
        row["values"] = [] if None in values else [value for value in values if value is not None]
        if published and published.averages_over > 1:
            _average(row, published.averages_over)
    undefined = [
        f"{v} of seed {r['deterministic']['seed']}"
        for v, r in zip(row["values"], good, strict=False)
        if not math.isfinite(v)
    ]
    if undefined:
        no_number = f"{row['metric']} is not a number on this split: {', '.join(undefined)}"
        row["state"] = row["state"].model_copy(update={"undefined": True})
        row["reason"] = "; ".join([row["reason"], no_number] if row["reason"] else [no_number])
    elif row["values"]:
        # unstated: most papers do not state which deviation they publish; ours is the population one
        mean = statistics.fmean(row["values"])
        row |= {"mean": mean, "std": statistics.pstdev(row["values"])}
        if row["published_mean"] is not None:
            row["difference"] = round(mean - row["published_mean"], 12)
    _add_cost(row, records, good)
    return with_state(row, row["state"])


def with_state(row: Row, state: CellState) -> Row:
    """Returns the row with another state, and with its status, which are the words of the state."""
    return row | {"state": state, "status": status_of(state)}


def _add_cost(row: Row, records: Sequence[Record], good: Sequence[Record]) -> None:
    """Adds parameters, device, and seconds and memory of runs on one kind of device. `good`: runs that ended well."""
    parameters = [r["deterministic"]["parameters"] for r in records if r["deterministic"].get("parameters") is not None]
    row["parameters"] = max(parameters, default=None)
    devices = {r["measured"]["device"] for r in records}
    row["device"] = ", ".join(sorted(devices)) or None
    if len(devices) == 1:
        row["seconds_per_epoch"] = statistics.median(r["measured"]["train_seconds_per_epoch"] for r in good or records)
        row["peak_memory_mib"] = max(r["measured"]["peak_memory_mib"] for r in records)


def _average(row: Row, size: int) -> None:
    """Replaces the runs of a row, in the order of the seeds, by averages of `size` runs each, as published."""
    runs = len(row["values"])
    whole = runs // size if row["state"].complete else 0
    if not whole:
        row["notes"].append(
            f"the published deviation is over averages of {size} runs: {runs} runs are there, which are compared as "
            "single runs"
        )
        return
    row["values"] = [statistics.fmean(row["values"][n * size : (n + 1) * size]) for n in range(whole)]
    row["runs"], row["seeds"] = whole, row["seeds"] // size
    row["notes"].append(f"{whole} averages of {size} runs each, as the published number has it")


def spread(row: Row) -> float | None:
    """Returns the deviation over the runs of a row, for readers. None for one run, which has none."""
    return row["std"] if row["runs"] > 1 else None


def absent(cell: str, status: Ended, reason: str | None) -> Row:
    """Returns the row of a cell without a readable result."""
    suite, dataset, model = cell.split("/")
    result = cast(
        Result, {"cell": cell, "suite": suite, "dataset": dataset, "model": model, "status": status, "reason": reason}
    )
    return with_expectation(summarise(result, []) | {"verdict": "none: no result"})


def _not_unique(records: Sequence[Record]) -> list[str]:
    """Returns which encodings of these runs the data do not determine: eigenvectors of repeated eigenvalues."""
    found = {
        key: said.get("flags", {})
        for record in records
        for key, said in (record["measured"].get("encodings") or {}).items()
    }
    return [
        f"! the encoding {key} has a {flag.replace('_', ' ')} in {count:,} of the graphs: its vectors there are one "
        "choice of many, made by the order of the nodes"
        for key, flags in found.items()
        for flag, count in flags.items()
        if count
    ]


def _of_parts(line: str) -> bool:
    cut = cut_in(line)
    return cut is not None and cut.unit in PARTS


def _ensemble_note(ensemble: EnsembleSummary, metric: str | None) -> str:
    default = mean_and_std(ensemble["default_mean"], ensemble["default_std"], metric in PERCENT)
    mean = mean_and_std(ensemble["mean"], ensemble["std"], metric in PERCENT)
    return (
        f"with default settings: {default} ({ensemble['default_hours']:.3g} hours); ensemble of the search's trials, "
        f"chosen on validation: {mean} ({ensemble['hours']:.3g} hours; tuned alone {ensemble['tuned_hours']:.3g})"
    )


def _search_note(search: SearchSummary) -> str:
    # older results count trials that were killed and queued again among those that failed
    killed = search["trials"] - search.get("used", search["trials"])
    counts = {state: n - killed * (state == "FAIL") for state, n in sorted(search["states"].items())}
    states = ", ".join(f"{n} {state.lower()}" for state, n in counts.items() if n)
    space = (
        f" over {', '.join(search['keys'])} ({search['space']})" if search.get("keys") and search.get("space") else ""
    )
    objectives = f"; objectives: {', '.join(search['objectives'])}" if search.get("objectives") else ""
    started = f"; {n} warm starts" if (n := search.get("warm_starts")) else ""
    return (
        f"searched on validation: {search.get('used', search['trials'])} trials ({states}){space}{objectives}{started}"
    )
