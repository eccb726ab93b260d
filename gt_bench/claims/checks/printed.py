"""The tests of claims on printed numbers alone: which row of a table is best, by how much, and what a sentence's own figures come to."""

import operator
from collections.abc import Mapping, Sequence
from typing import Annotated, Literal

from pydantic import Field

from gt_bench.claims.checks.registry import Contest, Found, test
from gt_bench.config.schema import nearest
from gt_bench.papers.published import RESULTS, Published, PublishedError, lookup, printed_at, read_entries
from gt_bench.stats.equivalence import sample_std

Rank = Annotated[int, Field(ge=1)]


@test
def best(
    paper: str,
    table: str,
    method: str,
    datasets: Sequence[str] = (),
    metrics: Sequence[str] = (),
    split: str = "test",
    against: Sequence[str] = (),
    rank: Rank = 1,
    count: int | None = None,
    only: bool = False,
) -> Found:
    """Test whether `method` is among the `rank` best of each column: better than all but rank - 1 of the others.

    Numbers that are equal after rounding are tied, and neither is better.

    Args:
        paper: Paper of the table.
        table: Its name.
        method: Method that the claim is about.
        datasets: Columns of these datasets; all.
        metrics: Columns of these metrics; all.
        split: Columns of this split.
        against: The methods to compare with; all that are not the paper's own.
        rank: The method is among so many best.
        count: In exactly so many columns; in all.
        only: In at least `count` columns. Our runs are always asked for at least `count`.

    Returns:
        The result, with one contest per column for our runs.
    """
    _of_table(paper, table, split=split)
    entries = printed_at({"paper": paper, "table": table, "method": method, "split": split})
    columns = [
        e
        for e in entries
        if (not datasets or e.dataset in datasets) and (not metrics or e.metric in metrics) and e.mean is not None
    ]
    _all_there(columns, datasets, "dataset", paper, table)
    _all_there(columns, metrics, "metric", paper, table)
    if not columns:
        lookup(paper, table, method, next(iter(datasets), ""))  # says which name it is
    if count is not None and count > len(columns):
        raise PublishedError(f"{table} of {paper} has {len(columns)} columns for {method}, not {count}")
    contests: list[Contest] = []
    won, tied, lost = 0, [], []
    for entry in columns:
        others = _column(entry)
        _all_there(others, against, "method", paper, table)
        rivals = [
            e
            for e in others
            if (e.method in against if against else not e.own) and e.method != method and e.mean is not None
        ]
        if not rivals:
            raise PublishedError(
                f"{table} of {paper} prints no number beside that of {method} on {entry.dataset} to compare with: name some under `against`"
            )
        contests.append(Contest(entry.place, tuple(e.place for e in rivals), rank))
        ahead = [e for e in rivals if _better(entry, e) is False]
        equal = [e for e in rivals if _better(entry, e) is None]
        said = f"{entry.dataset} {entry.metric}: {entry.printed} against {', '.join(f'{a.printed} of {a.method}' for a in (ahead or equal)[:3])}"
        if len(ahead) >= rank:
            lost.append(said)
        elif len(ahead) + len(equal) >= rank:
            tied.append(said)
        else:
            won += 1
    expected = len(columns) if count is None else count
    right: bool | None = won >= expected if only else won == expected
    if tied and won <= expected <= won + len(tied):
        right = None
    place = "best" if rank == 1 else f"among the first {rank}"
    why = f"{place} in {won} of {len(columns)} columns"
    why += f" (not: {'; '.join(lost)})" if lost else ""
    why += f" (equal after rounding: {'; '.join(tied)})" if tied else ""
    return Found(right, why, contests=tuple(contests), least=expected)


@test
def not_better(paper: str, table: str, method: str, than: str, split: str = "test") -> Found:
    """Test whether `method` is not clearly better than another: published as better in at most half of the columns, ties included.

    Args:
        paper: Paper of the table.
        table: Its name.
        method: Method that is not better.
        than: Method that it is compared with.
        split: Columns of this split.

    Returns:
        The result. By our runs the claim holds if the method is better, beyond the 95 % interval, in at most half of the columns.
    """
    _of_table(paper, table, split=split)
    columns = [
        (entry, lookup(paper, table, than, entry.dataset, entry.metric, split))
        for entry in printed_at({"paper": paper, "table": table, "method": method, "split": split})
        if entry.mean is not None
    ]
    if not columns:
        lookup(paper, table, method, "")  # says which name it is
    ahead = [f"{a.dataset}: {a.printed} against {b.printed}" for a, b in columns if _better(a, b)]
    most = len(columns) // 2
    return Found(
        len(ahead) <= most,
        f"{method} ahead of {than} in {len(ahead)} of {len(columns)} columns"
        + (f" ({'; '.join(ahead)})" if ahead else ""),
        contests=tuple(Contest(a.place, (b.place,)) for a, b in columns),
        most=most,
    )


@test
def gain(
    paper: str,
    printed: float,
    of: Mapping[str, str],
    over: Mapping[str, str] | None = None,
    tolerance: float = 0.0,
) -> Found:
    """`of` is better than `over` (or than the best other number of its column) by `printed`, in the printed unit and up to the rounding of the
    numbers and `tolerance`. `of` may name no dataset: then the largest gain of its table counts, as `up to` means it."""
    if "dataset" in of:
        entries = [lookup(paper, **of)]
    else:
        entries = [e for e in printed_at({"paper": paper, **of}) if not e.measured and e.mean is not None]
        if not entries:
            raise PublishedError(f"{RESULTS} prints nothing at {of} of {paper}")
    gains = []
    for entry in entries:
        rivals = [lookup(paper, **over)] if over else entry.rivals()
        rival = max(rivals, key=lambda e: _sign(entry) * e.number)
        scale = 100 if entry.unit == "percent" else 1
        gains.append(
            (
                scale * _sign(entry) * (entry.number - rival.number),
                scale * (entry.rounding + rival.rounding),
                entry,
                rival,
            )
        )
    value, rounding, entry, rival = max(gains, key=operator.itemgetter(0))
    # the sentence's own last digit
    digits = 0.5 * 10.0 ** -_decimals(printed)
    return Found(
        abs(value - printed) <= rounding + digits + tolerance - 1e-9,
        f"{entry.printed} ({entry.method}) against {rival.printed} ({rival.method}) on {entry.dataset}: {value:.4g}, printed {printed:g}",
        internal=True,
    )


@test
def share(
    paper: str,
    printed: float,
    of: Mapping[str, str],
    over: Mapping[str, str],
    what: Literal["mean", "params"] = "mean",
    saving: bool = False,
) -> Found:
    """100 of / over (or 100 (1 - of / over) where it is a saving) is `printed` per cent, up to its last digit; `what`: mean or params."""
    first, second = (_raw(paper, place, what) for place in (of, over))
    value = 100 * (1 - first / second) if saving else 100 * first / second
    return Found(
        abs(value - printed) <= 0.5 * 10.0 ** -_decimals(printed) + 1e-9,
        f"{first:g} against {second:g}: {value:.4g} %, printed {printed:g} %",
        internal=True,
    )


@test
def order(
    paper: str,
    table: str,
    better: Sequence[str],
    worse: Sequence[str],
    datasets: Sequence[str] = (),
    metric: str | None = None,
) -> Found:
    """Every number of `better` beats every number of `worse`, column by column (of `datasets`; all)."""
    there = [e for e in _of_table(paper, table, metric) if not datasets or e.dataset in datasets]
    entries, bare = (
        [e for e in there if e.mean is not None],
        [e for e in there if e.mean is None and e.method in (*better, *worse)],
    )
    _all_there(entries, datasets, "dataset", paper, table)
    _all_there(entries, [*better, *worse], "method", paper, table)
    columns: dict[tuple[str, ...], list[Published]] = {}
    for entry in entries:
        columns.setdefault((entry.dataset, entry.metric, entry.split), []).append(entry)
    pairs = [
        (a, b)
        for column in columns.values()
        for a in (e for e in column if e.method in better)
        for b in (e for e in column if e.method in worse)
    ]
    if not pairs:
        raise PublishedError(f"{table} of {paper} prints no two numbers in one column that this compares")
    wrong, equal = (
        [
            f"{a.dataset} {a.metric}: {a.printed} of {a.method}, {b.printed} of {b.method}"
            for a, b in pairs
            if _better(a, b) is word
        ]
        for word in (False, None)
    )
    said = f"{len(pairs) - len(wrong) - len(equal)} of {len(pairs)} comparisons"
    said += f" (not: {'; '.join(wrong[:4])})" if wrong else ""
    said += f" (equal after rounding: {'; '.join(equal[:4])})" if equal else ""
    if left_out := [f"{e.printed} of {e.method} on {e.dataset}" for e in bare]:
        said += f", without {', '.join(left_out)}"
    # who has no number has not beaten who has one
    lost = any(
        e.method in better and any(o.method in worse for o in columns.get((e.dataset, e.metric, e.split), ()))
        for e in bare
    )
    right = False if wrong or lost else None if equal else True
    return Found(right, said, contests=tuple(Contest(a.place, (b.place,)) for a, b in pairs))


@test
def no_gap(paper: str, table: str, methods: Sequence[str], seen: str, unseen: str) -> Found:
    """In every column each of `methods` has a number on the split `unseen` that is better than on `seen`."""
    if not methods or seen == unseen:
        raise PublishedError(
            f"no_gap holds two splits of some methods against each other: {len(methods)} methods, {seen!r} and {unseen!r} leave nothing to compare"
        )
    entries = [e for e in _of_table(paper, table) if e.method in methods and e.mean is not None]
    _all_there(entries, methods, "method", paper, table)
    for split in (seen, unseen):
        _all_there(entries, [split], "split", paper, table)
    at = {(e.method, e.dataset, e.metric, e.split): e for e in entries}
    pairs = [
        (e, at[e.method, e.dataset, e.metric, seen])
        for e in entries
        if e.split == unseen and (e.method, e.dataset, e.metric, seen) in at
    ]
    wrong, equal = (
        [
            f"{a.dataset} {a.metric}: {a.printed}, {b.printed} on {seen}, of {a.method}"
            for a, b in pairs
            if _better(a, b) is word
        ]
        for word in (False, None)
    )
    said = f"{len(pairs) - len(wrong) - len(equal)} of {len(pairs)} numbers better on {unseen} than on {seen}"
    said += f" (not: {'; '.join(wrong[:4])})" if wrong else ""
    said += f" (equal after rounding: {'; '.join(equal[:4])})" if equal else ""
    return Found(
        False if wrong else None if equal else True,
        said,
        contests=tuple(Contest(a.place, (b.place,)) for a, b in pairs),
    )


@test
def best_groups(paper: str, table: str, below: Sequence[str], above: Sequence[str]) -> Found:
    """In every column the best of the methods `below` is worse than the best of `above`."""
    entries = [e for e in _of_table(paper, table) if e.mean is not None]
    _all_there(entries, [*below, *above], "method", paper, table)
    columns = sorted({(e.dataset, e.metric, e.split) for e in entries})
    wrong, equal = [], []
    for column in columns:
        here = [e for e in entries if (e.dataset, e.metric, e.split) == column]
        groups = [[e for e in here if e.method in group] for group in (below, above)]
        if not all(groups):
            raise PublishedError(
                f"{table} of {paper} prints none of {', '.join(above if groups[0] else below)} on {column[0]}"
            )
        first, second = (max(group, key=lambda e: _sign(e) * e.number) for group in groups)
        said = f"{column[0]}: {first.printed} of {first.method}, {second.printed} of {second.method}"
        if _better(second, first) is False:
            wrong.append(said)
        elif _better(second, first) is None:
            equal.append(said)
    said = f"{len(columns) - len(wrong) - len(equal)} of {len(columns)} columns"
    said += f" (not: {'; '.join(wrong)})" if wrong else ""
    said += f" (equal after rounding: {'; '.join(equal)})" if equal else ""
    return Found(False if wrong else None if equal else True, said)


@test
def nobody_in_front(paper: str, table: str, rank: Rank) -> Found:
    """No method but the paper's own is among the first `rank` of those in every column."""
    entries = [e for e in _of_table(paper, table) if e.mean is not None and not e.own]
    always = None
    for dataset in sorted({e.dataset for e in entries}):
        column = sorted((e for e in entries if e.dataset == dataset), key=lambda e: -_sign(e) * e.number)
        front = {e.method for e in column[:rank]}
        always = front if always is None else always & front
    return Found(not always, f"always among the first {rank}: {', '.join(sorted(always or ())) or 'none'}")


@test
def not_significant(paper: str, first: Mapping[str, str], second: Mapping[str, str], level: float = 0.05) -> Found:
    """`first` is not better than `second` by a one-tailed t-test (Welch's, the printed deviations taken for population ones) at `level`."""
    from scipy import stats

    a, b = lookup(paper, **first), lookup(paper, **second)
    sides: list[float] = []
    for one in (a, b):
        if one.std is None or not one.runs or one.runs < 2:
            return Found(None, f"{one.printed} of {one.method}: no spread or no number of runs is printed")
        sides += [_sign(a) * one.number, sample_std(one.std, one.runs), one.runs]
    t = stats.ttest_ind_from_stats(*sides, equal_var=False, alternative="greater")
    return Found(
        bool(t.pvalue > level),
        f"{a.printed} ({a.method}) against {b.printed} ({b.method}): t {t.statistic:.3f}, one-tailed p {t.pvalue:.3f}",
    )


@test
def equals(paper: str, printed: float, of: Mapping[str, str]) -> Found:
    """A number of the text is that of the table, in the printed unit."""
    entry = lookup(paper, **of)
    value = entry.number * (100 if entry.unit == "percent" else 1)
    return Found(
        abs(value - printed) <= 0.5 * 10.0 ** -_decimals(printed) + 1e-9,
        f"{entry.table} prints {entry.printed} ({entry.method}), the text {printed:g}",
        internal=True,
    )


@test
def adds_up(paper: str, total: Mapping[str, str], parts: Sequence[str]) -> Found:
    """The number at `total` is the sum of those on the datasets `parts`."""
    whole = lookup(paper, **total)
    values = [lookup(paper, **{**total, "dataset": part}).number for part in parts]
    return Found(
        sum(values) == whole.mean,
        f"{' + '.join(f'{v:g}' for v in values)} = {sum(values):g}, printed {whole.printed}",
        internal=True,
    )


def _of_table(paper: str, table: str, metric: str | None = None, split: str | None = None) -> list[Published]:
    """Every printed number of a table, of one metric and split where given. Raises PublishedError for one that is not there."""
    entries = printed_at({"paper": paper, "table": table})
    if not entries:
        lookup(paper, table, "", "")  # says which name it is
    for key, name in (("metric", metric), ("split", split)):
        if name is not None:
            _all_there(entries, [name], key, paper, table)
            entries = [entry for entry in entries if getattr(entry, key) == name]
    return entries


def _column(entry: Published) -> list[Published]:
    return printed_at({key: getattr(entry, key) for key in ("paper", "table", "dataset", "metric", "split")})


def _sign(entry: Published) -> int:
    return 1 if entry.direction == "max" else -1


def _better(entry: Published, other: Published) -> bool | None:
    """Whether the number is better; None where the two differ by less than their rounding. Equal counts, which are exact, are not better."""
    difference, rounding = _sign(entry) * (entry.number - other.number), entry.rounding + other.rounding
    if abs(difference) < rounding - 1e-12:
        return None
    return difference > 1e-12


def _raw(paper: str, place: Mapping[str, str], what: str) -> float:
    found = lookup(paper, **place)
    if what == "mean" and found.mean is not None:
        return found.mean
    (entry,) = [
        e
        for e in read_entries(paper)
        if tuple(e[k] for k in ("paper", "table", "method", "dataset", "metric", "split")) == found.place
    ]
    if entry.get(what) is None:
        raise PublishedError(f"{found.source}: no {what} are printed")
    return float(entry[what])


def _decimals(value: float) -> int:
    return len(repr(float(value)).partition(".")[2].rstrip("0"))


def _all_there(entries: Sequence[Published], names: Sequence[str], key: str, paper: str, table: str) -> None:
    if missing := [name for name in names if name not in {getattr(e, key) for e in entries}]:
        known = sorted({getattr(e, key) for e in printed_at({"paper": paper, "table": table})})
        raise PublishedError(
            f"{RESULTS} has no {key} {missing[0]!r} under paper {paper!r}, table {table!r}{nearest(missing[0], known)}"
        )
