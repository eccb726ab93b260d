"""The words of rows. They are made here from values, and nothing reads them again."""

from gt_bench.leaderboard.row import Note, NoteKind, Row
from gt_bench.papers.units import PERCENT, mean_and_std, number_text
from gt_bench.records.cell import EnsembleSummary, SearchSummary
from gt_bench.records.run import RunStatus
from gt_bench.records.state import CellState, CellStatus
from gt_bench.stats.assumptions import Assumption, AssumptionKind
from gt_bench.stats.claim import Number
from gt_bench.stats.verdict import VerdictWord

CHOSEN_ON_TEST = (
    "the epoch was chosen on the test split, as for the published number: compare it with that number alone; it "
    "decides no claim and is in no ranking"
)
SEVERE = "caution: "  # before a note without which the numbers of a row must not be used


def status_of(state: CellState) -> str:
    """Returns the status of a row, such as `ok 3/5 (1 diverged, 1 oom), stale: data`."""
    return ", ".join(
        [
            _base_of(state),
            *(["modified"] if state.modified else []),
            *([f"stale: {', '.join(map(str, state.stale))}"] if state.stale else []),
        ]
    )


def _base_of(state: CellState) -> str:
    if state.undefined:
        return "no number"
    if state.complete:
        return "ok"
    if state.done:
        counts = [f"{count} {status}" for status, count in sorted(state.failed.items())]
        counts += [f"{state.unreadable} unreadable"] if state.unreadable else []
        return f"ok {state.done}/{state.wanted}" + (f" ({', '.join(counts)})" if counts else "")
    return CellStatus.UNREADABLE if state.unreadable and state.ended == RunStatus.OK else state.ended


def verdict_of(row: Row) -> str:
    """Returns the verdict: with missing seeds, or with the gap that the runs of a reproduced number exclude."""
    if row.verdict is None:
        return "–"
    said, gap = str(row.verdict.word), row.verdict.excluded_gap
    if row.provisional:
        said += f", {_runs_of(row)}"
    elif row.verdict.word == VerdictWord.REPRODUCED and gap is not None:
        said += f" (gaps above {number_text(gap, row.percent)}{' points' if row.percent else ''} excluded)"
    return said


def claim_of(row: Row) -> str:
    """Returns the verdict on the claim of a row, its rival, and how many more seeds would decide."""
    if row.claim is None:
        return "–"
    said = str(row.claim.word)
    if row.claim.rival is None:
        return said
    said += f", {_runs_of(row)}" if row.summary.runs < row.summary.full else ""
    said += f" (+{row.claim.more_seeds})" if row.claim.more_seeds else ""
    return f"{said}: {rival_of(row.claim.rival)}"


def rival_of(rival: Number) -> str:
    """Returns the number that a claim is compared with."""
    return f"{rival.name}, our run {rival.row}" if rival.row else f"{rival.name}, printed"


def _runs_of(row: Row) -> str:
    return f"{row.summary.runs} of {row.summary.full} runs"


def expected_of(row: Row) -> str:
    """Returns the limit that theory sets."""
    limit = row.outlook and row.outlook.limit
    return f"{limit.words} {number_text(limit.limit, row.percent)}" if limit else "–"


def reduced_of(row: Row) -> list[str]:
    """Returns what was reduced from the recipe."""
    return [str(cut) for cut in row.reduced]


def notes_of(row: Row) -> list[str]:
    """Returns what a reader must know besides the numbers: severe notes first."""
    said = [CHOSEN_ON_TEST] if row.chosen_on_test else []
    severe = [SEVERE + text for text in (*said, *(_note(note) for note in row.notes if note.kind.severe))]
    rest = [row.contributed] if row.contributed else []
    rest += [_note(note) for note in row.notes if not note.kind.severe]
    if row.published and row.published.note:
        rest.append(f"the published number: {row.published.note}")
    if row.search:
        rest.append(_search(row.search))
        if row.search.ensemble:
            rest.append(_ensemble(row.search.ensemble, row.metric))
    if row.imported:
        stale = f"; stale when it was imported: {', '.join(map(str, row.imported.stale))}" if row.imported.stale else ""
        rest.append(f"imported: shipped record of commit {(row.imported.commit or 'unknown')[:12]}{stale}")
    known = row.verdict.assumptions if row.verdict else ()
    of_claim = [each for each in (row.claim.assumptions if row.claim else ()) if each not in known]
    return [*severe, *rest, *map(_assumption, known), *(f"the claim: {_assumption(each)}" for each in of_claim)]


def _assumption(assumption: Assumption) -> str:
    """Returns the sentence of an assumption, for the published number or for a rival of the claim."""
    kind, values = assumption
    match kind:
        case AssumptionKind.SPREAD_UNKNOWN:
            return "one run, and no spread is published: the spread of the numbers is unknown"
        case AssumptionKind.SPREAD_UNSTATED:
            return (
                "no spread is published: one run with our spread, and an exact mean are tried; equivalence cannot be "
                "shown"
            )
        case AssumptionKind.DEVIATION_UNSTATED:
            return "which deviation is published is not stated: population and sample deviation are tried"
        case AssumptionKind.RUNS_UNSTATED:
            return f"the number of runs is not published: {values[0]} and {values[1]} are tried"
        case AssumptionKind.ONE_RUN_PUBLISHED:
            return f"the spread of a single run is published: {values[0]} and {values[1]} runs are tried"
        case AssumptionKind.ONE_RUN:
            return "a single run: judged by the published spread alone"
        case AssumptionKind.EQUAL_RUNS:
            return f"all {values[0]} runs are equal, which shows no spread: judged by the published spread"
        case AssumptionKind.NO_SPREAD:
            return "all runs of a side are equal, or no spread is published: the spread of the numbers is unknown"
        case AssumptionKind.COUNT:
            return "one run against one number: independently trained pairs limit the spread of the count"
        case AssumptionKind.RIVAL_SPREAD_UNSTATED:
            return f"no spread is published for {values[0]}: assumed to be one run with our spread"
        case AssumptionKind.RIVAL_RUNS_UNSTATED:
            return f"the number of runs of {values[0]} is not published: {values[1]} assumed"


def _note(note: Note) -> str:
    match note.kind, note.values:
        case NoteKind.NOT_UNIQUE, (str(key), str(flag), int(count)):
            return (
                f"the encoding {key} has a {flag.replace('_', ' ')} in {count:,} of the graphs: its vectors there are "
                "one choice of many, made by the order of the nodes"
            )
        case NoteKind.AVERAGED, (count, size):
            return f"{count} averages of {size} runs each, as the published number has it"
        case NoteKind.SINGLE_RUNS, (size, runs):
            return (
                f"the published deviation is over averages of {size} runs: {runs} runs are there, which are compared "
                "as single runs"
            )
        case NoteKind.MODIFIED, (versions,):
            return f"computed by code that was changed without raising a version ({versions})"
        case NoteKind.NOT_FOUND, (error,):
            return f"published number not found: {error}"
        case NoteKind.DATA_CHANGED, _:
            return "the data have changed since these runs: train the cell again"
        case NoteKind.SHIPPED, (commit,):
            return f"shipped record of commit {commit}"
        case NoteKind.PINNED, dates:
            return f"digest pinned on first use, {', '.join(map(str, dates))}"
    raise ValueError(f"{note}: its kind has no sentence")


def _ensemble(ensemble: EnsembleSummary, metric: str | None) -> str:
    default = mean_and_std(ensemble.default_mean, ensemble.default_std, metric in PERCENT)
    mean = mean_and_std(ensemble.mean, ensemble.std, metric in PERCENT)
    return (
        f"with default settings: {default} ({ensemble.default_hours:.3g} hours); ensemble of the search's trials, "
        f"chosen on validation: {mean} ({ensemble.hours:.3g} hours; tuned alone {ensemble.tuned_hours:.3g})"
    )


def _search(search: SearchSummary) -> str:
    # older results count trials that were killed and queued again among those that failed
    used = search.trials if search.used is None else search.used
    counts = {state: n - (search.trials - used) * (state == "FAIL") for state, n in sorted(search.states.items())}
    states = ", ".join(f"{n} {state.lower()}" for state, n in counts.items() if n)
    space = f" over {', '.join(search.keys)} ({search.space})" if search.keys and search.space else ""
    objectives = f"; objectives: {', '.join(search.objectives)}" if search.objectives else ""
    started = f"; {search.warm_starts} warm starts" if search.warm_starts else ""
    return f"searched on validation: {used} trials ({states}){space}{objectives}{started}"


def remarks_of(row: Row) -> list[str]:
    """Returns what a reader must know about a row besides its numbers, one line each, with its dataset and recipe."""
    tests = [f"{row.dataset}: {row.outlook.tests}"] if row.outlook else []
    return [*tests, *(f"{row.dataset} / {row.model}: {text}" for text in said_of(row))]


def reason_of(row: Row) -> list[str]:
    """Returns why a row is not complete, with its dataset and recipe: one line, or none."""
    return [f"{row.dataset} / {row.model}: {text}" for text in _reason(row)]


def said_of(row: Row) -> list[str]:
    """Returns what a reader must know about a row besides its numbers."""
    limit, said = row.outlook and row.outlook.limit, _reason(row)
    said += [f"reduced, not the published setting: {', '.join(reduced_of(row))}"] if row.reduced else []
    said += [f"{expected_of(row)} expected: {limit.because}"] if limit else []
    if row.published:
        said.append(f"published {row.published.printed} ({row.published.source})")
        said += [f"{SEVERE}how the published number was made: {flag}" for flag in row.published.flags]
    return said + notes_of(row)


def _reason(row: Row) -> list[str]:
    return [f"{status_of(row.state)}: {' '.join(row.reason.split())}"] if row.reason else []
