"""Verdicts of rows: on each published number, on the claim to be best in a column, and over all numbers together."""

from collections.abc import Mapping, Sequence

from gt_bench.config.cuts import seeds_in
from gt_bench.config.verdict_settings import Rules
from gt_bench.papers.pair_counts import COUNT
from gt_bench.papers.published import Published, PublishedError, lookup, resolve
from gt_bench.schemas import Result, Row
from gt_bench.stats.verdict import (
    COUNT_STD,
    Claim,
    Number,
    false_discovery,
    judge,
    judge_claim,
    sample_std,
    seeds_needed,
)


def with_verdict(
    row: Row,
    result: Result,
    rules: Rules | None = None,
    printed: Published | None = None,
) -> Row:
    """Returns the row with its verdict on the published number (gt_bench/stats/verdict.py).

    A cell where only seeds are missing has a provisional verdict, which is marked. A cell whose runs failed, or that is
    `reduced` otherwise, gets none; neither does a cost, which depends on the authors' machine.

    Args:
        row: the row of `summarise`.
        result: result of the cell.
        rules: rules of verdicts.
        printed: another published number than that of the cell.
    """
    cuts = [seeds_in(line) for line in row["reduced"]]
    full = runs_in_full(row)
    state = row["state"]
    if row["mean"] is None or row["std"] is None:
        return row | {"verdict": "none: no result"}
    if state.modified:
        return row | {"verdict": "none: modified code"}
    # these would be a choice among the runs: what failed may have failed for what it would have scored
    if failed := sum(state.failed.values()):
        return row | {"verdict": f"none: {failed} of {full} runs failed"}
    if not all(cuts):
        return row | {"verdict": "none: reduced"}
    if printed and printed.measured:
        return row | {"verdict": "none: another machine"}
    problems: list[str] = []
    published = printed or printed_number(result, problems)
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
        "excluded_gap": verdict.excluded_gap,
        "seeds_needed": seeds_needed(row["std"], row["runs"], published, full, rules) if published else None,
        "notes": [*row["notes"], *verdict.assumptions],
    }  # fmt: skip


def with_claims(rows: Sequence[Row], rules: Rules | None = None) -> list[Row]:
    """Adds claims and false-discovery rates, which depend on all rows.

    Args:
        rows: Rows with verdicts. The false-discovery rate is over these rows and no others.
        rules: Rules of verdicts.

    Returns:
        The rows with the verdict on each paper's claim to be best in its column, against our complete run of a rival
        where there is one and its published number otherwise, and with `q_difference`.
    """
    ours: dict[tuple[str, ...], list[Row]] = {}
    for row in rows:
        if row["provisional"] or row["chosen_on_test"]:
            continue
        if row["published_place"] and row["interval_low"] is not None:
            ours.setdefault(tuple(row["published_place"]), []).append(row)
    return with_false_discovery([_with_claim(row, ours, rules) for row in rows])


def with_false_discovery(rows: Sequence[Row]) -> list[Row]:
    """Sets `q_difference` over exactly these rows.

    Dependent rows are one comparison (`comparisons`). Its p value is the smallest of its rows times their number
    (Bonferroni), which is valid under any dependence. Benjamini-Hochberg is over comparisons.

    Args:
        rows: Rows with verdicts.

    Returns:
        The rows; those of one comparison have the same `q_difference`, and rows without a complete verdict have None.
    """
    groups = comparisons(rows)
    p_values = p_of_comparisons(rows)
    rates = dict(zip(p_values, false_discovery(list(p_values.values())), strict=True))
    return [
        row | {"q_difference": None if group is None or row["p_difference"] is None else rates[group]}
        for row, group in zip(rows, groups, strict=True)
    ]


def p_of_comparisons(rows: Sequence[Row]) -> dict[int, float]:
    """Returns the p value of each comparison that has one: the smallest of its rows times their number, at most 1."""
    found: dict[int, list[float]] = {}
    for row, group in zip(rows, comparisons(rows), strict=True):
        if group is not None and row["p_difference"] is not None:
            found.setdefault(group, []).append(row["p_difference"])
    return {group: min(1.0, len(p_values) * min(p_values)) for group, p_values in found.items()}


def comparisons(rows: Sequence[Row]) -> list[int | None]:
    """Group complete verdicts that depend on each other.

    Two rows are one comparison if they are of the same runs (several metrics of a cell), of the same published number
    (several recipes, or a number that a paper publishes twice), or have the same mean and deviation next to the same
    published mean and deviation.

    Args:
        rows: Rows with verdicts.

    Returns:
        For each row the index of its comparison, from 0 in the order of the rows; None for rows without a complete
        verdict, and for rows whose epoch was chosen on the test split.
    """
    groups: list[tuple[set[object], set[int]]] = []  # keys and indices of the rows of a comparison
    for index, row in enumerate(rows):
        if row["interval_low"] is None or row["provisional"] or row["chosen_on_test"]:
            continue
        equal = (row["metric"], row["mean"], row["std"], row["published_mean"], row["published_std"])
        keys: set[object] = {("cell", row["cell"]), ("equal", row["dataset"], *equal)}
        if row["published_place"]:
            keys.add(("number", lookup(*row["published_place"]).first_place))
        linked = [group for group in groups if group[0] & keys]
        groups = [group for group in groups if group not in linked]
        groups.append((keys.union(*(its for its, _ in linked)), {index}.union(*(its for _, its in linked))))
    order = sorted(min(members) for _, members in groups)
    found = {index: order.index(min(members)) for _, members in groups for index in members}
    return [found.get(index) for index in range(len(rows))]


def printed_number(result: Result, notes: list[str]) -> Published | None:
    """Returns the published number that a result refers to. Errors in the reference are added to `notes`."""
    try:
        return resolve(result.get("published"), result["dataset"], result.get("metric"))
    except PublishedError as error:
        notes.append(f"published number not found: {error}")
        return None


def _with_claim(row: Row, ours: Mapping[tuple[str, ...], Sequence[Row]], rules: Rules | None) -> Row:
    # a row whose print has neither runs nor a spread behind it has no interval, and still a claim
    judged = row["interval_low"] is not None or row["verdict"] == "not judged"
    if row["mean"] is None or row["published_mean"] is None or not row["published_place"] or not judged:
        return row
    if row["chosen_on_test"]:
        return row
    published = lookup(*row["published_place"])
    rivals = published.rivals() if published.own else []
    sign = 1 if published.direction == "max" else -1
    if not rivals:
        return row
    if sign * published.number <= max(sign * rival.number for rival in rivals):
        return row | {"claim": "not claimed"}
    numbers = [_rival(rival, ours.get(rival.place, ()), sign) for rival in rivals]
    claim = _better(row, published, max(numbers, key=lambda number: sign * number.mean), published.largest_std, rules)
    full = runs_in_full(row)
    low, high = claim.interval or (None, None)
    return row | {
        "claim": _provisional(claim.word, row["runs"], full) if row["runs"] < full else claim.word,
        "claim_rival": claim.rival, "claim_low": low, "claim_high": high, "claim_more_seeds": claim.more_seeds,
        "notes": [*row["notes"], *(f"the claim: {text}" for text in claim.assumptions if text not in row["notes"])],
    }  # fmt: skip


def runs_in_full(row: Row) -> int:
    """Returns the number of runs of the cell without limits."""
    return max([row["seeds"], *(cut.full for line in row["reduced"] if (cut := seeds_in(line)))])


def compared(row: Row, rival: Published, ours: Sequence[Row], rules: Rules | None = None) -> Claim:
    """Test whether a row is better than a rival, as a claim to be best is tested.

    Args:
        row: Our runs of a published number.
        rival: The published number to compare with.
        ours: Our rows of the rival; if there are any, they replace its published number.
        rules: Rules of verdicts.

    Returns:
        The verdict. A single run of ours scatters by its published spread, or by the rival's where it has none; if both
        sides are runs of ours, by the larger of the two.
    """
    published = lookup(*row["published_place"] or ())
    spreads = [spread for number in (published, rival) if (spread := number.largest_std) is not None]
    number = _rival(rival, ours, 1 if published.direction == "max" else -1)
    return _better(row, published, number, (max(spreads) if ours else spreads[0]) if spreads else None, rules)


def _better(row: Row, published: Published, rival: Number, spread: float | None, rules: Rules | None) -> Claim:
    if row["mean"] is None:
        raise ValueError(f"{row['cell']} has no number")
    us = Number(row["model"], row["mean"], _spread(row), row["runs"])
    return judge_claim(us, rival, published.direction, spread, rules, COUNT_STD if published.metric == COUNT else 0.0)


def _rival(published: Published, rows: Sequence[Row], sign: int) -> Number:
    runs = [(row["mean"], row) for row in rows if row["mean"] is not None]
    if runs:
        # of several recipes of one rival, the one that does best
        mean, row = max(runs, key=lambda run: sign * run[0])
        return Number(f"{published.method}, our run {row['model']}", mean, _spread(row), row["runs"])
    return Number(
        f"{published.method}, printed", published.number, published.largest_std, published.runs, published.rounding
    )


def _spread(row: Row) -> float | None:
    """Returns the sample standard deviation over the runs. None for one run."""
    return None if row["std"] is None or row["runs"] < 2 else sample_std(row["std"], row["runs"])


def _provisional(word: str, runs: int, full: int) -> str:
    return f"{word}, {runs} of {full} runs"
