"""Checks of published numbers alone: which row of a table is best."""

from collections.abc import Callable, Iterable, Sequence
from typing import Annotated

from pydantic import Field

from gt_bench.claims.checks.registry import CheckResult, RivalComparison, register_check
from gt_bench.config.schema import nearest
from gt_bench.papers.published import Published, lookup, printed_at
from gt_bench.papers.results_file import RESULTS, PublishedError

Rank = Annotated[int, Field(ge=1)]


@register_check
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
) -> CheckResult:
    """Checks whether `method` is among the `rank` best of each column: better than all but `rank - 1` of the others.

    Numbers that are equal after rounding are tied. Neither is better.

    Args:
        paper: paper of the table.
        table: name of the table.
        method: method of the claim.
        datasets: columns of these datasets. All if empty.
        metrics: columns of these metrics. All if empty.
        split: columns of this split.
        against: methods to compare with. All methods of other papers if empty.
        rank: the method is among the `rank` best.
        count: number of columns in which it is. None for all.
        only: whether more columns than `count` are accepted. Our runs must always confirm at least `count`.

    Returns:
        The result, with one comparison per column for our runs.
    """
    _numbers_of(paper, table, split=split)
    entries = printed_at({"paper": paper, "table": table, "method": method, "split": split})
    columns = [
        e
        for e in entries
        if (not datasets or e.dataset in datasets) and (not metrics or e.metric in metrics) and e.mean is not None
    ]
    _check_names(columns, datasets, "dataset", paper, table)
    _check_names(columns, metrics, "metric", paper, table)
    if not columns:
        lookup(paper, table, method, next(iter(datasets), ""))  # raises an error that names the wrong key
    if count is not None and count > len(columns):
        problem = f"{table} of {paper} has {len(columns)} columns for {method}, not {count}"
        raise PublishedError(problem, place="count", value=count)
    comparisons: list[RivalComparison] = []
    won, tied, lost = 0, [], []
    for entry in columns:
        others = printed_at({key: getattr(entry, key) for key in ("paper", "table", "dataset", "metric", "split")})
        _check_names(others, against, "method", paper, table)
        rivals = [
            e
            for e in others
            if (e.method in against if against else not e.own) and e.method != method and e.mean is not None
        ]
        if not rivals:
            problem = f"{table} of {paper} has no other number on {entry.dataset} to compare {method} with"
            raise PublishedError(problem, place="against", value=against, remedy="name some")
        comparisons.append(RivalComparison(entry.place, tuple(e.place for e in rivals), rank))
        ahead, equal = ([e for e in rivals if better(entry, e) is word] for word in (False, None))
        said = (
            f"{entry.dataset} {entry.metric}: {entry.printed} against "
            f"{', '.join(f'{a.printed} of {a.method}' for a in (ahead or equal)[:3])}"
        )
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
    why = f"{place} in {won} of {len(columns)} columns{exceptions(lost, tied)}"
    return CheckResult(right, why, comparisons=tuple(comparisons), min_wins=expected)


@register_check
def not_better(paper: str, table: str, method: str, than: str, split: str = "test") -> CheckResult:
    """Checks that a method is better than another one in at most half of the columns, ties included.

    Args:
        paper: paper of the table.
        table: name of the table.
        method: method that is not better.
        than: method that it is compared with.
        split: columns of this split.

    Returns:
        The result. By our runs the claim holds if the method is better, beyond the 95 % interval, in at most half of
            the columns.
    """
    _numbers_of(paper, table, split=split)
    columns = [
        (entry, lookup(paper, table, than, entry.dataset, entry.metric, split))
        for entry in printed_at({"paper": paper, "table": table, "method": method, "split": split})
        if entry.mean is not None
    ]
    if not columns:
        lookup(paper, table, method, "")  # raises an error that names the wrong key
    ahead = [f"{a.dataset}: {a.printed} against {b.printed}" for a, b in columns if better(a, b)]
    most = len(columns) // 2
    return CheckResult(
        len(ahead) <= most,
        f"{method} ahead of {than} in {len(ahead)} of {len(columns)} columns"
        + (f" ({'; '.join(ahead)})" if ahead else ""),
        comparisons=tuple(RivalComparison(a.place, (b.place,)) for a, b in columns),
        max_wins=most,
    )


@register_check
def order(
    paper: str,
    table: str,
    better: Sequence[str],
    worse: Sequence[str],
    datasets: Sequence[str] = (),
    metric: str | None = None,
) -> CheckResult:
    """Checks that every number of `better` beats every number of `worse` in the same column.

    Args:
        paper: paper of the table.
        table: name of the table.
        better: methods that are better.
        worse: methods that are worse.
        datasets: columns of these datasets. All if empty.
        metric: columns of this metric. All if None.
    """
    there = [e for e in _numbers_of(paper, table, metric) if not datasets or e.dataset in datasets]
    entries, bare = (
        [e for e in there if e.mean is not None],
        [e for e in there if e.mean is None and e.method in (*better, *worse)],
    )
    _check_names(entries, datasets, "dataset", paper, table)
    _check_names(entries, [*better, *worse], "method", paper, table)
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
        raise PublishedError(f"{table} of {paper} has no column with numbers of both groups")
    wrong, equal = not_won(
        pairs, lambda a, b: f"{a.dataset} {a.metric}: {a.printed} of {a.method}, {b.printed} of {b.method}"
    )
    said = f"{len(pairs) - len(wrong) - len(equal)} of {len(pairs)} comparisons{exceptions(wrong[:4], equal[:4])}"
    if left_out := [f"{e.printed} of {e.method} on {e.dataset}" for e in bare]:
        said += f", without {', '.join(left_out)}"
    # a method without a number does not beat a method with one
    lost = any(
        e.method in better and any(o.method in worse for o in columns.get((e.dataset, e.metric, e.split), ()))
        for e in bare
    )
    comparisons = tuple(RivalComparison(a.place, (b.place,)) for a, b in pairs)
    return CheckResult(False if wrong or lost else None if equal else True, said, comparisons=comparisons)


@register_check
def no_gap(paper: str, table: str, methods: Sequence[str], seen: str, unseen: str) -> CheckResult:
    """Checks that each method has better numbers on the split `unseen` than on `seen`, in every column."""
    if not methods or seen == unseen:
        given = f"{len(methods)} methods, {seen!r} and {unseen!r} leave nothing to compare"
        raise PublishedError(f"no_gap compares two splits of at least one method: {given}")
    entries = [e for e in _numbers_of(paper, table) if e.method in methods and e.mean is not None]
    _check_names(entries, methods, "method", paper, table)
    for split in (seen, unseen):
        _check_names(entries, [split], "split", paper, table)
    at = {(e.method, e.dataset, e.metric, e.split): e for e in entries}
    pairs = [
        (e, at[e.method, e.dataset, e.metric, seen])
        for e in entries
        if e.split == unseen and (e.method, e.dataset, e.metric, seen) in at
    ]
    wrong, equal = not_won(
        pairs, lambda a, b: f"{a.dataset} {a.metric}: {a.printed}, {b.printed} on {seen}, of {a.method}"
    )
    said = f"{len(pairs) - len(wrong) - len(equal)} of {len(pairs)} numbers better on {unseen} than on {seen}"
    said += exceptions(wrong[:4], equal[:4])
    comparisons = tuple(RivalComparison(a.place, (b.place,)) for a, b in pairs)
    return CheckResult(False if wrong else None if equal else True, said, comparisons=comparisons)


@register_check
def best_groups(paper: str, table: str, below: Sequence[str], above: Sequence[str]) -> CheckResult:
    """Checks that the best method of `above` beats the best method of `below` in every column."""
    entries = [e for e in _numbers_of(paper, table) if e.mean is not None]
    _check_names(entries, [*below, *above], "method", paper, table)
    columns = sorted({(e.dataset, e.metric, e.split) for e in entries})
    pairs = []
    for column in columns:
        here = [e for e in entries if (e.dataset, e.metric, e.split) == column]
        groups = [[e for e in here if e.method in group] for group in (below, above)]
        if not all(groups):
            group = above if groups[0] else below
            raise PublishedError(f"{table} of {paper} has no number of {', '.join(group)} on {column[0]}", value=group)
        first, second = (max(group, key=lambda e: sign_of(e) * e.number) for group in groups)
        pairs.append((second, first))
    wrong, equal = not_won(pairs, lambda a, b: f"{a.dataset}: {b.printed} of {b.method}, {a.printed} of {a.method}")
    said = f"{len(columns) - len(wrong) - len(equal)} of {len(columns)} columns{exceptions(wrong, equal)}"
    return CheckResult(False if wrong else None if equal else True, said)


@register_check
def nobody_in_front(paper: str, table: str, rank: Rank) -> CheckResult:
    """Checks that no method of another paper is among the first `rank` of them in every column."""
    entries = [e for e in _numbers_of(paper, table) if e.mean is not None and not e.own]
    always = None
    for dataset in sorted({e.dataset for e in entries}):
        column = sorted((e for e in entries if e.dataset == dataset), key=lambda e: -sign_of(e) * e.number)
        front = {e.method for e in column[:rank]}
        always = front if always is None else always & front
    return CheckResult(not always, f"always among the first {rank}: {', '.join(sorted(always or ())) or 'none'}")


def _numbers_of(paper: str, table: str, metric: str | None = None, split: str | None = None) -> list[Published]:
    """Returns the published numbers of a table, optionally of one metric and split."""
    entries = printed_at({"paper": paper, "table": table})
    if not entries:
        lookup(paper, table, "", "")  # raises an error that names the wrong key
    for key, name in (("metric", metric), ("split", split)):
        if name is not None:
            _check_names(entries, [name], key, paper, table)
            entries = [entry for entry in entries if getattr(entry, key) == name]
    return entries


def sign_of(entry: Published) -> int:
    """Returns 1 if larger is better, otherwise -1."""
    return 1 if entry.direction == "max" else -1


def not_won(
    pairs: Iterable[tuple[Published, Published]], text: Callable[[Published, Published], str]
) -> tuple[list[str], list[str]]:
    """Returns `text` of the pairs whose first number is worse, and of those that are equal after rounding."""
    known = [(better(a, b), text(a, b)) for a, b in pairs]
    return [said for word, said in known if word is False], [said for word, said in known if word is None]


def exceptions(lost: Sequence[str], tied: Sequence[str]) -> str:
    """Returns the comparisons that were not won as text, empty if there are none."""
    named = {"not": lost, "equal after rounding": tied}
    return "".join(f" ({what}: {'; '.join(texts)})" for what, texts in named.items() if texts)


def better(entry: Published, other: Published) -> bool | None:
    """Returns whether a number is better; None if the difference is smaller than the rounding.

    Counts are exact. Equal counts are not better.
    """
    difference, rounding = sign_of(entry) * (entry.number - other.number), entry.rounding + other.rounding
    if abs(difference) < rounding - 1e-12:
        return None
    return difference > 1e-12


def _check_names(entries: Sequence[Published], names: Sequence[str], key: str, paper: str, table: str) -> None:
    if missing := [name for name in names if name not in {getattr(e, key) for e in entries}]:
        known = sorted({getattr(e, key) for e in printed_at({"paper": paper, "table": table})})
        under = f"under paper {paper!r}, table {table!r}{nearest(missing[0], known)}"
        raise PublishedError(f"{RESULTS} has no {missing[0]!r} {under}", place=key, value=missing[0])
