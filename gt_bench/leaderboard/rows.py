"""The rows of a cell: statistics of its records next to the published numbers, with the verdicts on them.

Everything here is a function of its arguments. Equal records give equal rows.
"""

import math
import statistics
from collections import Counter
from collections.abc import Sequence
from dataclasses import replace

from gt_bench.config.cuts import PARTS, SEEDS
from gt_bench.config.verdict_settings import Rules
from gt_bench.leaderboard.expectations import agreement
from gt_bench.leaderboard.references import References
from gt_bench.leaderboard.row import Cost, Note, NoteKind, Outlook, Row, Summary
from gt_bench.leaderboard.verdicts import verdict_on
from gt_bench.papers.published import Published
from gt_bench.papers.units import PERCENT, Unit
from gt_bench.records.cell import CellResult
from gt_bench.records.run import RunRecord
from gt_bench.records.state import CellState, Ended
from gt_bench.stats.verdict import Verdict, VerdictWord
from gt_bench.store.shipped_files import contribution_of
from gt_bench.utils.versions import version_text


def rows_of(
    result: CellResult,
    records: Sequence[RunRecord],
    references: References,
    rules: Rules | None = None,
    problems: Sequence[str] = (),
) -> list[Row]:
    """Returns the rows of a cell with their verdicts: its metric first, then further published numbers.

    Args:
        result: result of the cell.
        records: its records.
        references: what it is compared with.
        rules: rules of verdicts.
        problems: why further records could not be read, added to the reason.
    """
    rows = [row_of(result, records, references, problems)]
    for number in references.further:
        row = row_of(result, records, references, problems, number)
        if row.summary.values or not row.summary.runs:
            rows.append(replace(row, outlook=None))
    judged = [replace(row, verdict=verdict_on(row, rules)) for row in rows]
    first = judged[0]
    comparable = first.summary.std is not None and not first.more_than_seeds and not first.state.modified
    if comparable and first.outlook and first.outlook.limit:
        agrees = agreement(first.outlook.limit, first.summary.values, rules or Rules())
        judged[0] = replace(first, outlook=replace(first.outlook, agreement=agrees))
    return judged


def row_of(
    result: CellResult,
    records: Sequence[RunRecord],
    references: References,
    problems: Sequence[str] = (),
    further: Published | None = None,
) -> Row:
    """Returns the row of a cell without its verdict.

    Args:
        result: result of the cell.
        records: its records.
        references: what it is compared with.
        problems: why further records could not be read, added to the reason.
        further: compare with this published number instead of that of the recipe.
    """
    published = further or references.published
    # a run that met its time limit has the counts over the pairs that were done
    whole = [r for r in records if published and published.whole_in(r) and r.run.status in ("ok", "timed-out")]
    good = [r for r in records if r.run.status == "ok" or r in whole]
    parts_are_whole = bool(whole) and len(whole) == len(good)
    metric, values = _values(result, good, whole, published, further)
    modified = [r for r in records if r.run.digests.modified]
    undefined = [
        f"{value} of seed {r.run.seed}" for value, r in zip(values, good, strict=False) if not math.isfinite(value)
    ]
    no_number = [f"{metric} is not a number on this split: {', '.join(undefined)}"] if undefined else []
    imported = result.imported
    seeds = len(result.seeds)
    state = CellState(
        ended=result.status, wanted=seeds, done=len(good), unreadable=len(problems),
        failed=dict(Counter(r.run.status.value for r in records if r not in good)),
        undefined=bool(undefined), modified=bool(modified), stale=list(imported.stale) if imported else [],
    )  # fmt: skip
    summary = Summary(
        tuple(values), None, None, len(good), seeds,
        max([seeds, *(cut.full for cut in result.reduced if not isinstance(cut, str) and cut.unit == SEEDS)]),
        tuple(r.digest for r in records),
    )  # fmt: skip
    summary, averaged = _averaged(summary, published, state)
    if summary.values and not undefined:
        # most papers do not state which deviation they publish; ours is the population one
        mean, std = statistics.fmean(summary.values), statistics.pstdev(summary.values)
        summary = replace(summary, mean=mean, std=std)
    notes = [Note(NoteKind.PINNED, tuple(result.pinned))] if result.pinned else []
    if references.problem:
        notes.append(Note(NoteKind.NOT_FOUND, (references.problem,)))
    notes += _not_unique(records)
    if modified:
        notes.append(Note(NoteKind.MODIFIED, (version_text(modified[0].run.versions, modified=True),)))
    return Row(
        cell=result.cell,
        metric=metric,
        direction=further.direction if further else result.direction,
        unit=_unit(result, metric or references.metric, published),
        state=state,
        summary=summary,
        cost=_cost(records, good),
        reason="; ".join([*filter(None, [result.reason]), *problems, *no_number]) or None,
        reduced=tuple(
            cut for cut in result.reduced if not (parts_are_whole and not isinstance(cut, str) and cut.unit in PARTS)
        ),
        published=published,
        outlook=_outlook(references, result.model),
        search=result.search,
        imported=imported,
        contributed=contribution_of(records),
        chosen_on_test=result.recipe.get("select") == "test",
        notes=(*notes, *averaged),
    )  # fmt: skip


def absent(cell: str, ended: Ended, reason: str | None, references: References) -> Row:
    """Returns the row of a cell without a readable result."""
    return Row(
        cell, None, None, Unit.PERCENT if references.metric in PERCENT else Unit.NONE, CellState(ended=ended),
        reason=reason, verdict=Verdict(VerdictWord.NO_RESULT),
        outlook=_outlook(references, cell.split("/")[2]),
    )  # fmt: skip


def _outlook(references: References, model: str) -> Outlook | None:
    of = references.touchstone
    return Outlook(of.tests, of.chance, of.rows.get(model)) if of else None


def _values(
    result: CellResult,
    good: Sequence[RunRecord],
    whole: Sequence[RunRecord],
    published: Published | None,
    further: Published | None,
) -> tuple[str | None, list[float]]:
    """Returns the metric that is compared with the published number, and the value of each run, if all have one."""
    metric = result.metric
    if further:
        metric = further.metric + (f" ({further.dataset})" if further.dataset != result.dataset else "")
    # the published dataset may be a part of the test set
    of_part = bool(good) and published is not None and all(published.part in r.run.test_metrics for r in good)
    if published and of_part:
        metric = f"{published.metric} ({published.dataset})"
    values = [published.ours(r) if published and (further or of_part or r in whole) else r.run.test for r in good]
    return metric, [] if None in values else [value for value in values if value is not None]


def _unit(result: CellResult, metric: str | None, published: Published | None) -> Unit:
    if published:
        return published.unit
    scaled = result.recipe.get("targets") and metric in ("mae", "mse", "rmse")
    return Unit.PERCENT if metric in PERCENT else Unit.DEVIATIONS if scaled else Unit.NONE


def _averaged(summary: Summary, published: Published | None, state: CellState) -> tuple[Summary, list[Note]]:
    """Replaces the runs, in the order of the seeds, by averages of several runs each, as published."""
    size, runs = published.averages_over if published else 1, len(summary.values)
    if size == 1 or not summary.runs:
        return summary, []
    count = runs // size if state.complete else 0
    if not count:
        return summary, [Note(NoteKind.SINGLE_RUNS, (size, runs))]
    means = tuple(statistics.fmean(summary.values[n * size : (n + 1) * size]) for n in range(count))
    averages = replace(summary, values=means, runs=count, wanted=summary.wanted // size, full=summary.full // size)
    return averages, [Note(NoteKind.AVERAGED, (count, size))]


def _cost(records: Sequence[RunRecord], good: Sequence[RunRecord]) -> Cost:
    """Returns parameters and device, and seconds and memory of runs on one kind of device."""
    parameters = [r.run.parameters for r in records if r.run.parameters is not None]
    devices = sorted({r.measured.device for r in records})
    cost = Cost(max(parameters, default=None), device=", ".join(devices) or None)
    if len(devices) != 1:
        return cost
    return replace(
        cost,
        seconds_per_epoch=statistics.median(r.measured.train_seconds_per_epoch for r in good or records),
        peak_memory_mib=max(r.measured.peak_memory_mib for r in records),
    )


def _not_unique(records: Sequence[RunRecord]) -> list[Note]:
    """Returns which encodings of these runs the data do not determine: eigenvectors of repeated eigenvalues."""
    flags_of = {key: said.flags for record in records for key, said in record.measured.encodings.items()}
    return [
        Note(NoteKind.NOT_UNIQUE, (key, flag, count))
        for key, flags in flags_of.items()
        for flag, count in flags.items()
        if count
    ]
