"""The leaderboard of a suite as files: JSON, CSV and Markdown, with the count of verdicts and how to read them."""

import json
from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from gt_bench.config.verdict_settings import Rules
from gt_bench.data.registry import catalog
from gt_bench.leaderboard.columns import table_lines
from gt_bench.leaderboard.row import Row
from gt_bench.leaderboard.verdicts import p_of_comparisons
from gt_bench.leaderboard.words import notes_of, reduced_of, rival_of, status_of
from gt_bench.papers.units import Unit
from gt_bench.records.state import CellState, CellStatus
from gt_bench.stats.claim import ClaimWord
from gt_bench.stats.false_discovery import false_discovery
from gt_bench.stats.verdict import Verdict, VerdictWord
from gt_bench.stats.welch import STD_DDOF
from gt_bench.utils.format import csv_text
from gt_bench.utils.io import json_value, write_bytes


def to_columns(row: Row) -> dict[str, Any]:
    """Returns a row as JSON: its columns, its state, and its source and ensemble if it has them."""
    line: dict[str, Any] = {**_columns(row), "state": row.state}
    if row.source:
        line["source"] = row.source
    if row.search and row.search.ensemble:
        line["ensemble"] = row.search.ensemble
    return line


def _columns(row: Row) -> dict[str, object]:
    """Returns a row as flat columns, in the order of its CSV. This is the only place that knows their names.

    Numbers are raw units (a percentage is a fraction); None where there is none.
    """
    mine, published, claim, cost = row.summary, row.published, row.claim, row.cost
    verdict, outlook = row.verdict or Verdict(VerdictWord.NO_RESULT), row.outlook
    limit = outlook.limit if outlook else None
    low, high = verdict.interval or (None, None)
    claim_low, claim_high = claim.interval if claim and claim.interval else (None, None)
    return {
        "cell": row.cell,
        "dataset": row.dataset,
        "model": row.model,
        "status": status_of(row.state),
        "reason": row.reason,
        "metric": row.metric,
        "direction": row.direction,
        "unit": row.unit,
        "mean": mine.mean,
        "std": mine.std,
        "std_ddof": STD_DDOF,
        "runs": mine.runs,
        "seeds": mine.wanted,
        "published_mean": published.mean if published else None,
        "published_std": published.std if published else None,
        "published_runs": published.runs if published else None,
        "published_printed": published.printed if published else None,
        "published_source": published.source if published else None,
        "published_place": list(published.place) if published else None,
        "flags": list(published.flags) if published else [],
        "difference": row.difference,
        "interval_low": low,
        "interval_high": high,
        "verdict": row.verdict.word if row.verdict else None,
        "provisional": None if low is None else row.provisional,
        "margin": verdict.margin,
        "margin_std": verdict.margin_std,
        "power": verdict.power,
        "seeds_needed": verdict.seeds_needed,
        "p_difference": verdict.p_difference,
        "p_equivalence": verdict.p_equivalence,
        "excluded_gap": verdict.excluded_gap,
        "q_difference": verdict.q_difference,
        "claim": claim.word if claim else None,
        "claim_rival": rival_of(claim.rival) if claim and claim.rival else None,
        "claim_low": claim_low,
        "claim_high": claim_high,
        "claim_more_seeds": claim.more_seeds if claim else None,
        "reduced": reduced_of(row),
        "notes": notes_of(row),
        "chosen_on_test": row.chosen_on_test,
        "parameters": cost.parameters,
        "seconds_per_epoch": cost.seconds_per_epoch,
        "peak_memory_mib": cost.peak_memory_mib,
        "device": cost.device,
        "values": list(mine.values),
        "digests": list(mine.digests),
        "tests": outlook.tests if outlook else None,
        "chance": outlook.chance if outlook else None,
        "expected": limit.words if limit else None,
        "expected_limit": limit.limit if limit else None,
        "expected_margin": limit.margin if limit else None,
        "expected_because": limit.because if limit else None,
        "as_expected": outlook.agreement if outlook else None,
        "contributed": row.contributed,
    }


COLUMNS = tuple(_columns(Row("suite/dataset/row", None, None, Unit.NONE, CellState(ended=CellStatus.NOT_RUN))))


def to_json(suite: str, rows: Sequence[Row], rules: Rules) -> str:
    """Returns the rows as JSON, with units, the kind of standard deviation and the rules of verdicts."""
    head = {
        "suite": suite,
        "std": "population (ddof 0) over runs",
        "verdict": rules.model_dump(mode="json"),
        "tally": tally(rows, rules),
        "units": "raw: percentages as fractions",
    }
    return json.dumps(head | {"rows": [*map(to_columns, rows)]}, indent=1, allow_nan=True, default=json_value) + "\n"


def write_reports(suite: str, rows: Sequence[Row], reports: Path, rules: Rules) -> list[Path]:
    """Writes the three files atomically. Raises WriteError."""
    contents = {"json": to_json(suite, rows, rules), "csv": to_csv(rows), "md": to_markdown(suite, rows, rules)}
    return [write_bytes(reports / f"{suite}.{kind}", text.encode()) for kind, text in contents.items()]


def to_csv(rows: Sequence[Row]) -> str:
    """Returns `COLUMNS` of the rows as CSV. Lists are joined by semicolons."""
    return csv_text(COLUMNS, map(to_columns, rows))


def to_markdown(suite: str, rows: Sequence[Row], rules: Rules) -> str:
    """Returns the page of a suite: its table, the number of verdicts, and an explanation."""
    head = [f"# Leaderboard: {suite}", "", *table_lines(rows), tally(rows, rules), ""]
    return "\n".join([*head, "## How to read it", "", explanation(rules)]) + "\n"


def tally(rows: Sequence[Row], rules: Rules) -> str:
    """Returns the number of verdicts of each kind, and how many are expected by chance."""
    if outlooks := [row.outlook for row in rows if row.outlook and row.outlook.limit]:
        words = Counter(outlook.agreement or "without a number" for outlook in outlooks)
        return (
            f"{words.total()} rows for which theory predicts the result: "
            f"{', '.join(f'{n} {word}' for word, n in words.items())}."
        )
    rows = [row for row in rows if not row.chosen_on_test]
    complete = [row for row in rows if row.counts]
    words = Counter(row.verdict.word for row in complete if row.verdict)
    numbers = {row.published.first_place for row in complete if row.published}
    counts = ", ".join(f"{n} {word}" for word, n in sorted(words.items())) or "none"
    p_values = p_of_comparisons(complete)
    rates = false_discovery(list(p_values.values()))
    off = sum(p < rules.level for p in p_values.values())
    sure = sum(q is not None and q < rules.level for q in rates)
    claims = Counter(row.claim.word for row in rows if row.claim and row.summary.runs >= row.summary.full)
    said = [
        f"{len(complete)} verdicts on {len(numbers)} published numbers ({counts}).",
        *([_generated(complete)] if words[VerdictWord.REPRODUCED] else []),
        "Verdicts that depend on each other (the same runs, the same published number, or equal results) are one "
        f"comparison: {len(p_values)} comparisons. If all were reproduced in truth, chance alone would on average give "
        f"p below {rules.level:g} in at most {rules.level * len(p_values):.2g} of them; {off} have it, {sure} of them "
        f"with q below {rules.level:g} (Benjamini-Hochberg over these {len(p_values)}).",
        f"Provisional: {sum(row.provisional for row in rows)} verdicts, in none of these counts.",
        f"Claims to be best: {claims[ClaimWord.HOLDS]} hold, {claims[ClaimWord.FAILS]} fail, "
        f"{claims[ClaimWord.UNDECIDED]} undecided.",
    ]
    return " ".join(said)


def _generated(complete: Sequence[Row]) -> str:
    """Returns how many reproduced numbers are of generated data, which prove little about real data."""
    reproduced = [row for row in complete if row.verdict and row.verdict.word == VerdictWord.REPRODUCED]
    made = [row for row in reproduced if (spec := catalog().get(row.dataset)) and not spec.files]
    names = ", ".join(sorted({row.dataset for row in made}))
    certain = sum(row.summary.std == 0.0 for row in made)
    return f"Of the {len(reproduced)} reproduced, {len(made)} are on generated data" + (
        f" ({names}); in {certain} of these all runs have the same value." if made else "."
    )


def explanation(rules: Rules) -> str:
    """Returns an explanation of the verdicts, with the values of the rules."""
    numbers = {"level": rules.level, "sure": 100 * (1 - rules.level), "power": 100 * rules.power}
    return EXPLANATION.format(few=rules.unstated_runs[0], most=rules.unstated_runs[1], **numbers).strip()


EXPLANATION = """
- One row is one cell: a model on a dataset with one recipe. mean ± std: test metric, mean and population standard
  deviation (ddof 0) over the runs that succeeded; runs: how many of the requested runs these are. The epoch is
  chosen on validation. ↑ larger is better, ↓ smaller is better.
- published: the number of the paper in the same unit; difference: ours minus published. *!*: something is wrong with
  how it was made, see the remarks. A cell has a row for every number that its paper publishes for these runs; a
  cost is shown next to the published one, never judged.
- difference: with its {sure:g} % interval (Welch, and the rounding of the published number). verdict: *consistent*:
  the published mean lies in the {sure:g} % prediction interval of a replication of this size, which is the interval
  around 0 of the same width; *better* or *worse*: it does not; *reproduced*: consistent, and two one-sided tests
  show that the difference is smaller than the margin; *undecided*: the paper leaves out what would decide it (no
  number of runs: {few} and {most} are tried; no spread: an exact mean, and one run with our spread). q:
  false-discovery rate over the complete verdicts; verdicts that depend on each other count as one comparison.
- margin: the one with which equal truth passes as reproduced in {power:g} % of cases at full seeds; power: that
  chance for the runs that there are, at the published spread; seeds needed: for {power:g} % at the observed spread. A
  cell where only seeds are missing is judged with the seeds it has (*consistent, 3 of 10 runs*); one that is
  *reduced* in trials, epochs or data, or whose runs failed, is not.
- claim: does our mean still beat the best other number of the paper's column (our run of it if there is one)? By
  the same interval: *claim holds*, *claim fails*, *undecided* (+n: n more seeds would decide). docs/statistics.md
  explains what each word does not mean.
- expected (docs/embedded.md): a limit that theory sets before the run. *as expected*: the {sure:g} % interval of the
  mean (Student) lies on the expected side of it, with the margin stated there; *not as expected*: on the other;
  *undecided*: across it, or one run.
- s/epoch: median over runs of the training seconds per epoch; peak MiB: largest over runs (GPU: allocated; CPU:
  resident).
"""
