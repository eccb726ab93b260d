"""The leaderboard of a suite as rows, and the rows as JSON, CSV, Markdown and a table on the terminal.

Numbers in rows are raw units (a percentage is a fraction), as in records; `unit` says how people read them, and only the Markdown and the
terminal table convert. Equal records give equal bytes.
"""

import csv
import io
import json
import math
import re
import statistics
from collections import Counter
from collections.abc import Mapping, Sequence
from html import escape
from pathlib import Path
from typing import cast

from stages.addresses import printable
from stages.contents import COLUMNS, Record, Result, Row, SearchSummary
from stages.files import write_bytes
from stages.records.carried import note_of, text_of
from stages.report.expected import with_expectation
from stages.report.published import Published, PublishedError, further, lookup, resolve
from stages.report.rules import Rules
from stages.report.units import PERCENT
from stages.report.verdict import MOST_SEEDS, STD_DDOF, Number, false_discovery, judge, judge_claim, sample_std, seeds_needed
from stages.store import StoreError
from stages.texts import markdown_line

# what a limit of params.yaml leaves in a result: cut in seeds, in pairs
SEED_CUT, PAIR_CUT = r"\d+ of (\d+) seeds", r"\d+ of \d+ pairs"
NO_NUMBER = "no number"  # status of a row whose metric is undefined (NaN or infinite) in a run that ended well


def rows_of(result: Result, records: Sequence[Record], problems: Sequence[str] = (), rules: Rules | None = None) -> list[Row]:
    """The rows of one cell with their verdicts: its metric first, then one for every further number that the paper prints of these runs."""
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


def summarise(
    result: Result,
    records: Sequence[Record],
    problems: Sequence[str] = (),
    printed: Published | None = None,
) -> Row:
    """One row, all but its verdict: the records of one cell in figures.

    `mean` and `std` (population, `std_ddof` 0) are over the runs that ended well, `runs` counts them, `seeds` counts those asked for;
    seconds and memory are the median and the maximum over the runs. `problems`: what could not be read, added to the reason. `printed`: a
    further published number that the row is about, instead of the cell's own.
    """
    row = cast(Row, dict.fromkeys(COLUMNS))  # what nothing is known of is None
    row |= {"cell": result["cell"], "dataset": result["dataset"], "model": result["model"]}
    row |= {"metric": result.get("metric"), "direction": result.get("direction")}
    if printed:
        part = f" ({printed.dataset})" if printed.dataset != result["dataset"] else ""
        row |= {"metric": printed.metric + part, "direction": printed.direction}
    notes = list(result.get("notes") or ())
    published = printed or _resolve(result, notes)
    # a run that met its time limit has the counts over the pairs that were done
    whole = [r for r in records if published and published.whole_in(r) and r["deterministic"]["status"] in ("ok", "timed-out")]
    good = [r for r in records if r["deterministic"]["status"] == "ok" or r in whole]
    seeds = len(result.get("seeds") or ())
    failures = Counter(r["deterministic"]["status"] for r in records if r not in good)
    reasons = [reason] if (reason := result.get("reason")) else []
    row |= {"status": _status(result["status"], len(good), seeds, failures, len(problems)), "runs": len(good), "seeds": seeds}
    row |= {
        "reduced": [cut for cut in result.get("reduced") or () if not (whole and len(whole) == len(good) and re.fullmatch(PAIR_CUT, cut))],
        "notes": [*notes, *_not_unique(records)],
        "flags": [],
        "values": [],
        "std_ddof": STD_DDOF,
        "digests": [r["digest"] for r in records],
    }
    row["reason"] = "; ".join([*reasons, *problems]) or None
    row["carried_over"] = text_of(records)
    if published:
        row["flags"] = list(published.flags)
        row |= {"published_mean": published.mean, "published_std": published.std, "published_runs": published.runs}
        row |= {"published_printed": published.printed, "published_source": published.source}
        row["published_place"] = list(published.place)
    if published and published.note:
        row["notes"].append(f"the published number: {published.note}")
    if search := result.get("search"):
        row["notes"].append(_search_note(search))
    if note := note_of(records):
        row["notes"].append(note)
    if imported := result.get("imported"):
        stale = f"; stale when it was imported: {', '.join(imported['stale'])}" if imported.get("stale") else ""
        row["notes"].append(f"imported: shipped record of commit {(imported.get('commit') or 'unknown')[:12]}{stale}")
        row["status"] += f", stale: {', '.join(imported['stale'])}" if stale else ""
    row["unit"] = published.unit if published else "percent" if row["metric"] in PERCENT else "none"
    if good:
        # the printed dataset may be a part of the test set
        of_part = published is not None and all(published.part in (r["deterministic"]["test_metrics"] or {}) for r in good)
        values = [published.ours(r) if published and (printed or of_part or r in whole) else r["deterministic"]["test"] for r in good]
        if published and of_part:
            row["metric"] = f"{published.metric} ({published.dataset})"
        row["values"] = [] if None in values else [value for value in values if value is not None]
    undefined = [f"{v} of seed {r['deterministic']['seed']}" for v, r in zip(row["values"], good, strict=False) if not math.isfinite(v)]
    if undefined:
        no_number = f"{row['metric']} is not a number on this split: {', '.join(undefined)}"
        row |= {"status": NO_NUMBER, "reason": "; ".join([row["reason"], no_number] if row["reason"] else [no_number])}
    elif row["values"]:
        # unstated: most papers do not say which deviation they print; the population one, as in the scripts behind the WebKB rows
        # (Polynormer's script prints the sample one: 5% more at ten runs)
        mean = statistics.fmean(row["values"])
        row |= {"mean": mean, "std": statistics.pstdev(row["values"])}
        if row["published_mean"] is not None:
            row["difference"] = round(mean - row["published_mean"], 12)
    parameters = [r["deterministic"]["parameters"] for r in records if r["deterministic"].get("parameters") is not None]
    seconds = [r["measured"]["train_seconds_per_epoch"] for r in good or records]
    memory = [r["measured"]["peak_memory_mib"] for r in records]
    row["parameters"] = max(parameters, default=None)
    row["seconds_per_epoch"] = statistics.median(seconds) if seconds else None
    row["peak_memory_mib"] = max(memory, default=None)
    row["device"] = ", ".join(sorted({r["measured"]["device"] for r in records})) or None
    return row


def _not_unique(records: Sequence[Record]) -> list[str]:
    """What the data do not determine in the encodings that these runs read: eigenvectors of a repeated eigenvalue."""
    found = {key: said.get("flags", {}) for record in records for key, said in (record["measured"].get("encodings") or {}).items()}
    return [
        f"! the encoding {key} has a {flag.replace('_', ' ')} in {count:,} of the graphs: its vectors there are one choice of many, made by the order of the nodes"
        for key, flags in found.items()
        for flag, count in flags.items()
        if count
    ]


def with_verdict(row: Row, result: Result, rules: Rules | None = None, printed: Published | None = None) -> Row:
    """The row with its verdict on the number (see stages/report/verdict.py).

    A cell that lacks nothing but seeds has a provisional one, which says so. One whose runs failed, or that is `reduced` otherwise, gets none,
    whatever its numbers; neither does a cost, which is one of the authors' machine.
    """
    cuts = [re.fullmatch(SEED_CUT, cut) for cut in row["reduced"]]
    full = max([row["seeds"], *(int(cut[1]) for cut in cuts if cut)])
    # these would be a choice among the runs: what failed may have failed for what it would have scored
    failed = _failed(row["status"].partition(", stale")[0])
    if not row["status"].startswith("ok") or row["mean"] is None or row["std"] is None:
        return row | {"verdict": "none: no result"}
    if failed:
        return row | {"verdict": f"none: {failed} of {full} runs failed"}
    if not all(cuts):
        return row | {"verdict": "none: reduced"}
    if printed and printed.measured:
        return row | {"verdict": "none: another machine"}
    problems: list[str] = []
    published = printed or _resolve(result, problems)
    if problems:
        return row | {"verdict": "none: published number not found"}
    verdict = judge(row["mean"], row["std"], row["runs"], published, full, rules)
    low, high = verdict.interval or (None, None)
    provisional = row["runs"] < full and verdict.interval is not None
    return {
        **row,
        "verdict": _provisional(verdict.word, row["runs"], full) if provisional else verdict.word,
        "provisional": provisional, "interval_low": low, "interval_high": high,
        "margin": verdict.margin, "margin_std": verdict.margin_std, "power": verdict.power,
        "p_difference": verdict.p_difference, "p_equivalence": verdict.p_equivalence,
        "seeds_needed": seeds_needed(row["std"], row["runs"], published, full, rules) if published else None,
        "notes": [*row["notes"], *verdict.assumptions],
    }  # fmt: skip


def with_claims(rows: Sequence[Row], rules: Rules | None = None) -> list[Row]:
    """The rows with what only all of them together say: the verdict on each paper's claim to be best in its column, against our own complete run of
    a rival where there is one and its print otherwise; and the false-discovery rates of `higher` and `lower` over all complete numbers."""
    ours: dict[tuple[str, ...], list[Row]] = {}
    for row in rows:
        if row["published_place"] and row["interval_low"] is not None and not row["provisional"]:
            ours.setdefault(tuple(row["published_place"]), []).append(row)
    complete = [row["p_difference"] if row["interval_low"] is not None and not row["provisional"] else None for row in rows]
    return [_with_claim(row, ours, rules) | {"q_difference": q} for row, q in zip(rows, false_discovery(complete), strict=True)]


def _with_claim(row: Row, ours: Mapping[tuple[str, ...], Sequence[Row]], rules: Rules | None) -> Row:
    # a row whose print has neither runs nor a spread behind it has no interval, and still a claim
    judged = row["interval_low"] is not None or row["verdict"] == "not judged"
    if row["mean"] is None or row["published_mean"] is None or not row["published_place"] or not judged:
        return row
    published = lookup(*row["published_place"])
    rivals = published.rivals() if published.own else []
    sign = 1 if published.direction == "max" else -1
    if not rivals:
        return row
    if sign * published.number <= max(sign * rival.number for rival in rivals):
        return row | {"claim": "not claimed"}
    numbers = [_rival(rival, ours.get(rival.place, ()), sign) for rival in rivals]
    best = max(numbers, key=lambda number: sign * number.mean)
    us = Number(row["model"], row["mean"], _spread(row), row["runs"])
    spread = published.std if published.std is None or not published.runs else sample_std(published.std, published.runs)
    claim = judge_claim(us, best, published.direction, spread, rules)
    full = max([row["seeds"], *(int(cut[1]) for cut in (re.fullmatch(SEED_CUT, c) for c in row["reduced"]) if cut)])
    low, high = claim.interval or (None, None)
    return row | {
        "claim": _provisional(claim.word, row["runs"], full) if row["runs"] < full else claim.word,
        "claim_rival": claim.rival, "claim_low": low, "claim_high": high, "claim_more_seeds": claim.more_seeds,
        "notes": [*row["notes"], *(f"the claim: {assumption}" for assumption in claim.assumptions if assumption not in row["notes"])],
    }  # fmt: skip


def _rival(published: Published, rows: Sequence[Row], sign: int) -> Number:
    runs = [(row["mean"], row) for row in rows if row["mean"] is not None]
    if runs:
        # of several recipes of one rival, the one that does best
        mean, row = max(runs, key=lambda run: sign * run[0])
        return Number(f"{published.method}, our run {row['model']}", mean, _spread(row), row["runs"])
    std = published.std
    if std is not None and published.runs:
        std = sample_std(std, published.runs)
    return Number(f"{published.method}, printed", published.number, std, published.runs, published.rounding)


def _spread(row: Row) -> float | None:
    """The sample standard deviation over the runs; None of one run."""
    return None if row["std"] is None or row["runs"] < 2 else sample_std(row["std"], row["runs"])


def _provisional(word: str, runs: int, full: int) -> str:
    return f"{word}, {runs} of {full} runs"


def _failed(status: str) -> int:
    """How many runs failed, by a status such as `ok 3/5 (1 diverged, 1 oom)`; what is missing or unreadable has not failed."""
    return sum(int(n) for n, what in re.findall(r"(\d+) ([\w-]+)", status.partition("(")[2]) if what != "unreadable")


def absent(cell: str, status: str, reason: str | None) -> Row:
    """The row of a cell without a readable result."""
    suite, dataset, model = cell.split("/")
    result = cast(Result, {"cell": cell, "suite": suite, "dataset": dataset, "model": model, "status": status, "reason": reason})
    return with_expectation(summarise(result, []) | {"verdict": "none: no result"})


def to_json(suite: str, rows: Sequence[Row], rules: Rules) -> str:
    """The rows with what a reader of them must know: units, the kind of deviation, the rules of verdicts."""
    head = {
        "suite": suite,
        "std": "population (ddof 0) over runs",
        "verdict": rules.model_dump(mode="json"),
        "tally": tally(rows, rules),
        "units": "raw: percentages as fractions",
    }
    return json.dumps(head | {"rows": rows}, indent=1, allow_nan=True) + "\n"


def write_reports(suite: str, rows: Sequence[Row], reports: Path, rules: Rules) -> list[Path]:
    """The three files, each replaced whole. Raises WriteError."""
    contents = {"json": to_json(suite, rows, rules), "csv": to_csv(rows), "md": to_markdown(suite, rows, rules)}
    return [write_bytes(reports / f"{suite}.{kind}", text.encode()) for kind, text in contents.items()]


def rows_in(path: Path) -> list[Row]:
    """The rows that `to_json` wrote. Raises StoreError for another content."""
    try:
        rows = json.loads(path.read_text())["rows"]
        if not all(set(COLUMNS) <= set(row) for row in rows):
            raise ValueError("a row lacks columns")
        return rows
    except (OSError, RecursionError, ValueError, KeyError, TypeError) as error:
        raise StoreError(f"{path}: not a leaderboard ({error}); write it again: python -m stages.leaderboard {path.stem}") from None


def to_csv(rows: Sequence[Row]) -> str:
    """`COLUMNS` of the rows; lists joined by semicolons."""
    file = io.StringIO()
    writer = csv.DictWriter(file, COLUMNS, lineterminator="\n")
    writer.writeheader()
    for row in rows:
        writer.writerow({k: "; ".join(map(str, v)) if isinstance(v, list) else v for k, v in row.items()})
    return file.getvalue()


SHOWN = (
    "dataset",
    "model",
    "metric",
    "mean ± std",
    "runs",
    "published",
    "difference [95 %]",
    "verdict",
    "q",
    "margin (power)",
    "seeds needed",
    "claim",
    "status",
    "parameters",
    "s/epoch",
    "peak MiB",
    "device",
    "chance",
    "expected",
    "as expected?",
)
THEORY = ("chance", "expected", "as expected?")
PRINT = ("published", "difference [95 %]", "verdict", "q", "margin (power)", "seeds needed", "claim")


def cells(row: Row) -> list[str]:
    """What people read of a row, in the order of SHOWN and in the paper's unit."""
    metric = (
        f"{row['metric']} {'↑' if row['direction'] == 'max' else '↓'}{' %' if row['unit'] == 'percent' else ''}" if row["metric"] else "–"
    )
    ours = _number(row["mean"], row) + (f" ± {_number(row['std'], row)}" if row["runs"] > 1 and row["std"] is not None else "")
    theirs = _number(row["published_mean"], row) + (f" ± {_number(row['published_std'], row)}" if row["published_std"] is not None else "")
    if row["published_mean"] is None and row["published_printed"]:
        theirs = row["published_printed"]
    theirs += " !" if row["flags"] else ""
    sign = "+" if row["difference"] is not None and row["difference"] > 0 else ""
    interval = "" if row["interval_low"] is None else f" [{_number(row['interval_low'], row)}, {_number(row['interval_high'], row)}]"
    status = ", ".join(part for part in (row["status"], row["reduced"] and "reduced", row["carried_over"]) if part)
    return [
        row["dataset"], row["model"], metric, ours, f"{row['runs']}/{row['seeds']}" if row["seeds"] else "–", theirs,
        sign + _number(row["difference"], row) + interval, row["verdict"],
        "–" if row["q_difference"] is None else f"{row['q_difference']:.2g}", _margin(row), _seeds_needed(row), _claim(row), status,
        "–" if row["parameters"] is None else f"{row['parameters']:,}",
        "–" if row["seconds_per_epoch"] is None else f"{row['seconds_per_epoch']:.3g}",
        "–" if row["peak_memory_mib"] is None else f"{row['peak_memory_mib']:,.0f}",
        row["device"] or "–", _number(row["chance"], row), _expected(row), row["as_expected"] or "–",
    ]  # fmt: skip


def shown_columns(rows: Sequence[Row]) -> list[int]:
    """Places in SHOWN of the columns that say something of these rows: of theory where it expects something, of print unless theory alone does."""
    theory = any(row["expected"] for row in rows)
    printed = not theory or any(row["published_printed"] for row in rows)
    names = [name for name in SHOWN if name not in THEORY and (printed or name not in PRINT)]
    if theory:
        after = names.index("runs") + 1
        names[after:after] = THEORY
    return [SHOWN.index(name) for name in names]


def to_markdown(suite: str, rows: Sequence[Row], rules: Rules) -> str:
    """The page of a suite: its table, the count of verdicts, and how to read it."""
    head = [f"# Leaderboard: {suite}", "", *table_lines(rows), tally(rows, rules), ""]
    return "\n".join([*head, "## How to read it", "", explanation(rules)]) + "\n"


def tally(rows: Sequence[Row], rules: Rules) -> str:
    """How many verdicts there are of each kind, and how many of them chance alone would bring."""
    if any(row["expected"] for row in rows):
        words = Counter(row["as_expected"] or "without a number" for row in rows if row["expected"])
        return (
            f"{words.total()} rows of which theory says beforehand what to expect: {', '.join(f'{n} {word}' for word, n in words.items())}."
        )
    complete = [row for row in rows if row["interval_low"] is not None and not row["provisional"]]
    words = Counter(row["verdict"].split(" (")[0] for row in complete)
    off = words["higher"] + words["lower"]
    sure = sum(row["q_difference"] is not None and row["q_difference"] < rules.level for row in complete)
    claims = Counter(row["claim"] for row in rows if row["claim"] in ("claim holds", "claim fails", "undecided"))
    return (
        f"{len(complete)} numbers judged ({', '.join(f'{n} {word}' for word, n in sorted(words.items())) or 'none'}). Were every one of them reproduced in truth, "
        f"chance alone would show at most {rules.level * len(complete):.1f} as higher or lower; {off} are, {sure} of them with q below {rules.level:g} "
        f"(Benjamini-Hochberg). Provisional: {sum(bool(row['provisional']) for row in rows)}, in none of these counts. "
        f"Claims to be best: {claims['claim holds']} hold, {claims['claim fails']} fail, {claims['undecided']} undecided."
    )


def table_lines(rows: Sequence[Row], heading: str = "##") -> list[str]:
    """Rows as a Markdown table, with their remarks under a heading of that level."""
    places = shown_columns(rows)
    texts = [[text[i] for i in places] for text in (SHOWN, *map(cells, rows))]
    lines = [markdown_line(texts[0]), markdown_line(["---"] * len(places)), *map(markdown_line, texts[1:]), ""]
    remarks = list(dict.fromkeys(remark for row in rows for remark in remarks_of(row)))
    shown = [f"- {escape(printable(remark), quote=False)}" for remark in remarks]  # a reason may hold what a foreign host said
    return [*lines, f"{heading} Remarks", "", *shown, ""] if shown else lines


def explanation(rules: Rules) -> str:
    """How verdicts are reached, with the numbers of the rules."""
    numbers = {"level": rules.level, "sure": 100 * (1 - rules.level), "power": 100 * rules.power}
    return EXPLANATION.format(few=rules.unstated_runs[0], most=rules.unstated_runs[1], **numbers).strip()


def remarks_of(row: Row) -> list[str]:
    """Whatever a reader must know about a row besides its figures, one line each."""
    name = f"{row['dataset']} / {row['model']}"
    remarks = [f"{name}: {row['status']}: {' '.join(row['reason'].split())}"] if row["reason"] else []
    if row["reduced"]:
        remarks.append(f"{name}: reduced, not the published setting: {', '.join(row['reduced'])}")
    remarks += [f"{row['dataset']}: {row['tests']}"] if row["tests"] else []
    remarks += [f"{name}: {_expected(row)} expected: {row['expected_because']}"] if row["expected"] else []
    if row["published_source"]:
        remarks.append(f"{name}: published {row['published_printed']} ({row['published_source']})")
    remarks += [f"{name}: ! how the published number was made: {flag}" for flag in row["flags"]]
    return remarks + [f"{name}: {note}" for note in row["notes"]]


# which columns a terminal has room for first, and which may take several lines; the files have all of them
PRIORITY = (
    "dataset",
    "model",
    "mean ± std",
    "chance",
    "expected",
    "as expected?",
    "published",
    "verdict",
    "metric",
    "runs",
    "status",
    "difference [95 %]",
    "claim",
    "seeds needed",
)
WRAPPED = {"expected", "as expected?", "verdict", "metric", "status", "claim", "difference [95 %]", "margin (power)", "device"}
RIGHT = {"mean ± std", "runs", "published", "parameters", "s/epoch", "peak MiB"}


def terminal_table(suite: str, rows: Sequence[Row], width: int = 150):
    """The same as a rich Table for a terminal of `width` columns."""
    from stages.report.fitting import fitting_table

    columns = shown_columns(rows)
    names, texts = [SHOWN[i] for i in columns], [[cells(row)[i] for i in columns] for row in rows]
    return fitting_table(names, texts, width, PRIORITY, WRAPPED, RIGHT, f"Leaderboard: {suite}", f" (reports/{suite}.md, --json)")


EXPLANATION = """
- One row is one cell: a model on a dataset with one recipe. mean ± std: test metric, mean and population standard deviation (ddof 0)
  over the runs that ended well; runs: how many of those asked for. The epoch is chosen on validation. ↑ larger is better, ↓ smaller is.
- published: the paper's own number in the same unit; difference: ours minus published. *!*: something is wrong with how it was made, see
  the remarks. A cell has a row for every number that its paper prints of these runs; a cost is shown beside the authors', never judged.
- difference: with its {sure:g} % interval (Welch, and the rounding of the print). verdict: *consistent*: the printed mean lies in the {sure:g} % prediction interval
  of a replication of this size, which is the interval around 0 of the same width; *higher* or *lower*: it does not; *reproduced*: consistent, and
  two one-sided tests show that the difference is smaller than the margin; *undecided*: it hangs on what the paper does not print (no number of
  runs: {few} and {most} are tried; no spread: an exact mean, and one run with our spread). q: false-discovery rate over the complete numbers.
- margin: the one with which equal truth passes as reproduced in {power:g} % of cases at full seeds; power: that chance for the runs that there are; seeds
  needed: for {power:g} % at the spread seen. A cell that lacks only seeds is judged with what it has (*consistent, 3 of 10 runs*); one that is *reduced* in trials,
  epochs or data, or whose runs failed, is not.
- claim: does our mean still beat the best other number of the paper's column (our own run of it where there is one)? By the same interval:
  *claim holds*, *claim fails*, *undecided* (+n: so many more seeds would decide). docs/verdicts.md says what each word does not mean.
- expected (docs/embedded.md): a limit that theory sets before the run. *as expected*: the {sure:g} % interval of the mean (Student) lies on the expected side
  of it, with the margin stated there; *not as expected*: on the other; *undecided*: across it, or one run.
- s/epoch: median over runs of the training seconds per epoch; peak MiB: largest over runs (GPU: allocated; CPU: resident).
"""


def _status(status: str, good: int, seeds: int, failures: Counter, unreadable: int) -> str:
    if good == seeds > 0:
        return "ok"
    counts = [f"{n} {what}" for what, n in sorted(failures.items())] + ([f"{unreadable} unreadable"] if unreadable else [])
    if good:
        return f"ok {good}/{seeds}" + (f" ({', '.join(counts)})" if counts else "")
    if unreadable and status == "ok":
        return "unreadable"
    return status


def _resolve(result: Result, notes: list[str]) -> Published | None:
    try:
        return resolve(result.get("published"), result["dataset"], result.get("metric"))
    except PublishedError as error:
        notes.append(f"published number not found: {error}")
        return None


def _search_note(search: SearchSummary) -> str:
    # older results count trials that were killed and queued again among those that failed
    killed = search["trials"] - search.get("used", search["trials"])
    counts = {state: n - killed * (state == "FAIL") for state, n in sorted(search["states"].items())}
    states = ", ".join(f"{n} {state.lower()}" for state, n in counts.items() if n)
    space = f" over {', '.join(search['keys'])} ({search['space']})" if search.get("keys") and search.get("space") else ""
    return f"searched on validation: {search.get('used', search['trials'])} trials ({states}){space}"


def _margin(row: Row) -> str:
    if row["margin"] is None:
        return "–"
    return _number(row["margin"], row) + ("" if row["power"] is None else f" ({100 * row['power']:.0f} %)")


def _seeds_needed(row: Row) -> str:
    if row["seeds_needed"] is None:
        # a margin and a power, and no number of runs that reaches the power wanted: the print itself is too uncertain
        return "–" if row["power"] is None else f"> {MOST_SEEDS}"
    return str(row["seeds_needed"])


def _claim(row: Row) -> str:
    if row["claim"] is None:
        return "–"
    more = f" (+{row['claim_more_seeds']})" if row["claim_more_seeds"] else ""
    return f"{row['claim']}{more}: {row['claim_rival']}" if row["claim_rival"] else row["claim"]


def _expected(row: Row) -> str:
    return f"{row['expected']} {_number(row['expected_limit'], row)}" if row["expected"] else "–"


def _number(value: float | None, row: Row) -> str:
    if value is None:
        return "–"
    return f"{100 * value:.2f}" if row["unit"] == "percent" else f"{value:.4g}"
