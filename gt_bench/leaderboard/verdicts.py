"""Verdicts of rows: on each published number, on the claim to be best in a column, and over all numbers together."""

from collections.abc import Mapping, Sequence
from dataclasses import replace

from gt_bench.config.verdict_settings import Rules
from gt_bench.leaderboard.row import NoteKind, Row
from gt_bench.papers.pair_counts import COUNT
from gt_bench.papers.published import Published
from gt_bench.stats.assumptions import COUNT_STD
from gt_bench.stats.claim import ClaimWord, JudgedClaim, Number, judge_claim
from gt_bench.stats.false_discovery import false_discovery
from gt_bench.stats.verdict import Verdict, VerdictWord, highest_of, judge, seeds_needed


def verdict_on(row: Row, rules: Rules | None = None) -> Verdict:
    """Returns the verdict on the published number of a row (gt_bench/stats/verdict.py).

    A cell where only seeds are missing has a verdict, which is provisional. A cell whose runs failed, or that is
    `reduced` otherwise, gets none; neither does a cost, which depends on the authors' machine.
    """
    mine, published = row.summary, row.published
    if mine.mean is None or mine.std is None:
        return Verdict(VerdictWord.NO_RESULT)
    if row.state.modified:
        return Verdict(VerdictWord.MODIFIED)
    # these would be a choice among the runs: what failed may have failed for what it would have scored
    if row.state.failed:
        return Verdict(VerdictWord.FAILED)
    if row.more_than_seeds:
        return Verdict(VerdictWord.REDUCED)
    if published is None:
        problem = any(note.kind == NoteKind.NOT_FOUND for note in row.notes)
        return Verdict(VerdictWord.NOT_FOUND if problem else VerdictWord.NO_NUMBER)
    if published.measured:
        return Verdict(VerdictWord.OTHER_MACHINE)
    verdict = judge(mine.mean, mine.std, mine.runs, published, mine.full, rules)
    return replace(verdict, seeds_needed=seeds_needed(mine.std, mine.runs, published, mine.full, rules))


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
        if row.counts and row.published:
            ours.setdefault(row.published.place, []).append(row)
    return with_false_discovery([replace(row, claim=_claim(row, ours, rules)) for row in rows])


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
    adjusted = []
    for row, group in zip(rows, groups, strict=True):
        if row.verdict:
            rate = None if group is None or row.verdict.p_difference is None else rates[group]
            row = replace(row, verdict=replace(row.verdict, q_difference=rate))
        adjusted.append(row)
    return adjusted


def p_of_comparisons(rows: Sequence[Row]) -> dict[int, float]:
    """Returns the p value of each comparison that has one: the smallest of its rows times their number, at most 1."""
    by_group: dict[int, list[float]] = {}
    for row, group in zip(rows, comparisons(rows), strict=True):
        if group is not None and row.verdict and row.verdict.p_difference is not None:
            by_group.setdefault(group, []).append(row.verdict.p_difference)
    return {group: min(1.0, len(p_values) * min(p_values)) for group, p_values in by_group.items()}


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
        if not row.counts or row.published is None:
            continue
        equal = (row.metric, row.summary.mean, row.summary.std, row.published.mean, row.published.std)
        keys: set[object] = {
            ("cell", row.cell), ("equal", row.dataset, *equal), ("number", row.published.first_place)
        }  # fmt: skip
        linked = [group for group in groups if group[0] & keys]
        groups = [group for group in groups if group not in linked]
        groups.append((keys.union(*(its for its, _ in linked)), {index}.union(*(its for _, its in linked))))
    order = sorted(min(members) for _, members in groups)
    group_of = {index: order.index(min(members)) for _, members in groups for index in members}
    return [group_of.get(index) for index in range(len(rows))]


def _claim(row: Row, ours: Mapping[tuple[str, ...], Sequence[Row]], rules: Rules | None) -> JudgedClaim | None:
    """Returns the verdict on the claim of a paper's own number to be the best of its column."""
    published = row.published
    # a row whose print has neither runs nor a spread behind it has no interval, and still a claim
    judged = row.interval is not None or (row.verdict and row.verdict.word == VerdictWord.NO_SPREAD)
    if not judged or published is None or not published.own or row.chosen_on_test:
        return None
    sign = 1 if published.direction == "max" else -1
    rivals = published.rivals()
    if not rivals:
        return None
    if sign * published.number <= max(sign * rival.number for rival in rivals):
        return JudgedClaim(ClaimWord.NOT_CLAIMED)
    numbers = [_rival(rival, ours.get(rival.place, ()), sign) for rival in rivals]
    return _better(row, published, max(numbers, key=lambda number: sign * number.mean), published.largest_std, rules)


def compared(row: Row, rival: Published, ours: Sequence[Row], rules: Rules | None = None) -> JudgedClaim:
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
    published = row.published
    if published is None:
        raise ValueError(f"{row.cell} has no published number")
    spreads = [spread for number in (published, rival) if (spread := number.largest_std) is not None]
    number = _rival(rival, ours, 1 if published.direction == "max" else -1)
    return _better(row, published, number, (max(spreads) if ours else spreads[0]) if spreads else None, rules)


def _better(row: Row, published: Published, rival: Number, spread: float | None, rules: Rules | None) -> JudgedClaim:
    if row.summary.mean is None:
        raise ValueError(f"{row.cell} has no number")
    us = Number(row.model, row.summary.mean, row.summary.sample_std, row.summary.runs)
    floor = COUNT_STD if published.metric == COUNT else 0.0
    return judge_claim(us, rival, published.direction, spread, rules, floor, highest_of(published))


def _rival(published: Published, rows: Sequence[Row], sign: int) -> Number:
    runs = [(row.summary.mean, row) for row in rows if row.summary.mean is not None]
    if runs:
        # of several recipes of one rival, the one that does best
        mean, row = max(runs, key=lambda run: sign * run[0])
        return Number(published.method, mean, row.summary.sample_std, row.summary.runs, row=row.model)
    return Number(published.method, published.number, published.largest_std, published.runs, published.rounding)
