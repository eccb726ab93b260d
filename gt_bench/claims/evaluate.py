"""Claims of papers in words: each claim of suites/PAPER/claims.yaml has a computed verdict.

    holds                      confirmed by data, by a computation (suites/PAPER/experiments) or by complete runs of
        ours
    agrees in the paper        agrees with the numbers of the paper; nothing was run, or not all required runs
    fails                      contradicted by the numbers of the paper, by data, by a computation or by complete runs
    inconsistent in the paper  two statements of the paper contradict each other; it is unknown which one is right
    undecided                  the check or the runs are not conclusive
    not tested                 there is no check (`needs` names what it requires), or its runs have not been computed

A check is a function registered by name. General checks are in gt_bench/claims/checks/, checks of one paper in
suites/PAPER/checks.py.
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from enum import StrEnum
from inspect import signature
from pathlib import Path
from typing import Literal, NamedTuple

from pydantic import ValidationError

from gt_bench.claims.checks.registry import (
    SUITE_CHECKS,
    CheckResult,
    RivalComparison,
    all_checks,
    find_check,
    is_withheld,
)
from gt_bench.config.schema import RecipeError, Strict, nearest, read_yaml, validated
from gt_bench.config.verdict_settings import Rules
from gt_bench.data.registry import catalog
from gt_bench.leaderboard.row import Row
from gt_bench.leaderboard.verdicts import compared
from gt_bench.papers.published import lookup
from gt_bench.papers.results_file import PublishedError
from gt_bench.stats.claim import ClaimWord
from gt_bench.utils.paths import suite_folders

CLAIMS = "claims.yaml"  # in the folder of a suite


class ClaimVerdict(StrEnum):
    """The verdict on a claim."""

    HOLDS = "holds"
    AS_PUBLISHED = "agrees in the paper"
    FAILS = "fails"
    INCONSISTENT = "inconsistent in the paper"
    UNDECIDED = "undecided"
    NOT_TESTED = "not tested"


@dataclass(frozen=True)
class Evaluation:
    """The verdict on a claim, and the reason; `provisional`: whether the reason contains incomplete runs."""

    verdict: ClaimVerdict
    why: str
    provisional: bool = False


class Test(Strict):
    """How a claim is tested.

    Attributes:
        kind: name of a check (`all_checks`).
        arguments: arguments of its function.
    """

    kind: str
    arguments: dict[str, object] = {}


class Claim(Strict):
    """A claim of a paper.

    Attributes:
        id: name of the claim.
        paper: the paper.
        place: section, table or figure that contains the claim.
        sentence: the words of the paper. Formulas are written as plain text.
        said: "quoted". "read off": the sentence describes a table, an equation or the released code. "asked here": a
            question that the paper does not raise.
        case: the part of the sentence that is tested, if it makes several statements.
        test: the check that decides it.
        needs: data or runs that the verdict requires besides published numbers. For a claim without a check, what a
            check would require.
        made_here: the data of the check, if they were made here because the paper's are not available. Its verdict
            says so.
        note: how an ambiguous sentence is interpreted.
    """

    id: str
    paper: str
    place: str
    sentence: str
    said: Literal["quoted", "read off", "asked here"] = "quoted"
    case: str | None = None
    test: Test | None = None
    needs: str | None = None
    made_here: str | None = None
    note: str | None = None

    @property
    def text(self) -> str:
        """The sentence for display: in quotation marks if quoted from the paper, with the case that is tested."""
        words = f"“{self.sentence}”" if self.said == "quoted" else f"{self.sentence} ({self.said})"
        return f"{words} [{self.case}]" if self.case else words


class Claims(Strict):
    """Content of a claims.yaml. Its claims have no key `paper`, which is the name of the folder."""

    claims: list[dict[str, object]]


def load_claims() -> list[Claim]:
    """Returns the claims of all suites.

    Raises:
        RecipeError: as for `claims_of`, or two claims have the same id.
    """
    claims = [claim for paper, folder in suite_folders().items() for claim in claims_of(paper, folder)]
    ids = [claim.id for claim in claims]
    if twice := sorted({i for i in ids if ids.count(i) > 1}):
        both = " and ".join(f"{claim.paper}/{CLAIMS}" for claim in claims if claim.id == twice[0])
        raise RecipeError(f"two claims are named {twice[0]!r}", file=both, value=twice[0])
    return claims


def claims_of(paper: str, folder: Path) -> list[Claim]:
    """Returns the claims of a paper, none if its folder has no claims.yaml.

    Raises:
        RecipeError: a claim is invalid or names an unknown check.
    """
    path = folder / CLAIMS
    if not path.exists():
        return []
    content = validated(Claims, read_yaml(path), path).claims
    claims = [validated(Claim, {"paper": paper, **claim}, path, f"claim {n}") for n, claim in enumerate(content, 1)]
    kinds = all_checks()
    # a claim may use a check of another suite
    if codes := [str(other / SUITE_CHECKS) for other in suite_folders().values() if is_withheld(other)]:
        needs = f"--trust, which runs {', '.join(codes)}: code from outside the benchmark, read it first"
        withheld = {"test": None, "needs": needs}
        claims = [c.model_copy(update=withheld) if c.test and c.test.kind not in kinds else c for c in claims]
    for claim in claims:
        if claim.test and claim.test.kind not in kinds:
            problem = f"unknown kind of test {claim.test.kind!r}{nearest(claim.test.kind, list(kinds))}"
            raise RecipeError(problem, file=path, place=claim.id, value=claim.test.kind)
        if not claim.test and not claim.needs:
            problem = "expected a key `test`, or `needs` with what a test would require"
            raise RecipeError(problem, file=path, place=claim.id)
    return claims


def evaluate_claim(
    claim: Claim, rows: Sequence[Row] = (), data: Path = Path("data"), path: str = CLAIMS, rules: Rules | None = None
) -> Evaluation:
    """Evaluates one claim; arguments, result and errors as of `_evaluated`. Data that were made here are named."""
    evaluation = _evaluated(claim, rows, data, path, rules)
    if not claim.made_here or evaluation.verdict == ClaimVerdict.NOT_TESTED:
        return evaluation
    return replace(evaluation, why=f"on data made here ({claim.made_here}): {evaluation.why}")


def _evaluated(claim: Claim, rows: Sequence[Row], data: Path, path: str, rules: Rules | None) -> Evaluation:
    """Evaluates one claim.

    Args:
        claim: the claim.
        rows: rows of the leaderboards, for claims that runs can decide. Rows whose epoch was chosen on the test split
            do not count.
        data: folder that contains packed/.
        path: file of the claim, for messages.
        rules: rules of verdicts (`run.verdict` of params.yaml).

    Raises:
        PublishedError: the claim refers to a number that is not published.
        RecipeError: it has invalid arguments.
    """
    if claim.test is None:
        return Evaluation(ClaimVerdict.NOT_TESTED, f"needs {claim.needs}")
    test = find_check(claim.test.kind)
    parameters = signature(test).parameters
    rows = [row for row in rows if not row.chosen_on_test]
    arguments = claim.test.arguments | {k: v for k, v in {"data": data, "rows": rows}.items() if k in parameters}
    try:
        result = test(paper=claim.paper, **arguments)
    except PublishedError as error:
        raise error.within(path, claim.id) from None
    except ValidationError as error:
        first = error.errors()[0]
        place = f"{claim.id}.{'.'.join(map(str, first['loc']))}"
        problem = f"invalid arguments of the test {claim.test.kind}: {first['msg']}"
        raise RecipeError(problem, file=path, place=place, value=first["input"]) from None
    except TypeError as error:
        problem = f"invalid arguments of the test {claim.test.kind}: {error}"
        raise RecipeError(problem, file=path, place=claim.id) from None
    if not result.computed:
        return Evaluation(ClaimVerdict.NOT_TESTED, result.reason)
    if result.holds is None:
        return Evaluation(ClaimVerdict.UNDECIDED, result.reason)
    if not result.holds:
        return Evaluation(ClaimVerdict.INCONSISTENT if result.internal else ClaimVerdict.FAILS, result.reason)
    if result.confirmed:
        return Evaluation(ClaimVerdict.HOLDS, result.reason)
    by_runs = _by_runs(result, rows, rules)
    datasets = sorted({comparison.ours[3] for comparison in result.comparisons})
    made = [name for name in datasets if (spec := catalog().get(name)) and not spec.files]
    if not made or by_runs.verdict == ClaimVerdict.AS_PUBLISHED:
        return by_runs
    return replace(by_runs, why=f"on data made here ({', '.join(made)}): {by_runs.why}")


def levels(count: int, least: int, rivals: int = 1, rank: int = 1) -> tuple[float, float]:
    """Returns the parts of the level at which one comparison is won, and lost.

    A statement holds if at least `least` of `count` comparisons are won. The p value of such a partial conjunction is
    (count - least + 1) times the `least`-th smallest (Benjamini and Heller 2008), and it fails with count - least + 1
    losses. A comparison is won against all but rank - 1 of its rivals, and lost to `rank` of them.

    Args:
        count: number of comparisons.
        least: how many of them must be won.
        rivals: number of rivals of the comparison.
        rank: the method is among the `rank` best.
    """
    return 1 / ((count - least + 1) * rank), 1 / (max(least, 1) * (rivals - rank + 1))


def _by_runs(check: CheckResult, rows: Sequence[Row], rules: Rules | None) -> Evaluation:
    """Returns the verdict on a claim that agrees with the published numbers, by our runs.

    Complete runs decide. The result of incomplete runs is added to the reason and marked as provisional. The level is
    divided among the comparisons (`levels`).
    """
    pairs = list(zip(check.comparisons, _results(check, rows, rules), strict=True))
    names = [_name(*pair) for pair in pairs]
    decided = [_of(comparison, [[r for r in its if r.complete] for its in by_rival]) for comparison, by_rival in pairs]
    count = len(decided)
    wins, losses = decided.count(ClaimWord.HOLDS), decided.count(ClaimWord.FAILS)
    if check.max_wins is None:
        least = count if check.min_wins is None else check.min_wins
        against, wanted = ClaimWord.FAILS, f"; the claim needs {least} of {count}" if least < count else ""
        failed, holds = losses > count - least, bool(count) and wins >= least
        said = f"claim holds in {'all ' if wins == count else f'{wins} of '}{count} comparisons"
    else:
        # a method that complete runs do not show to be better supports the claim
        against, wanted, undecided = ClaimWord.HOLDS, "", decided.count(ClaimWord.UNDECIDED)
        failed, holds = wins > check.max_wins, bool(count) and count - losses - undecided <= check.max_wins
        said = f"better in {wins} of {count} comparisons, at most {check.max_wins} by the claim"
    if failed:
        those = [name for name, word in zip(names, decided, strict=True) if word == against]
        why = f"our runs: claim fails in {len(those)} of {count} comparisons{wanted}: {'; '.join(those[:3])}"
        return Evaluation(ClaimVerdict.FAILS, why)
    if holds:
        return Evaluation(ClaimVerdict.HOLDS, f"our runs: {said}")
    if any(decided):
        why = f"as published: {check.reason}; runs have decided {wins + losses} of {count} comparisons"
        return Evaluation(ClaimVerdict.UNDECIDED, why)
    by_all = _provisional(names, pairs)
    return Evaluation(ClaimVerdict.AS_PUBLISHED, "; ".join([check.reason, *by_all]), bool(by_all))


class _Result(NamedTuple):
    """The result of one comparison with a rival, by `runs` of `full` runs of the side that has fewer."""

    word: ClaimWord
    runs: int
    full: int

    @property
    def complete(self) -> bool:
        return self.runs >= self.full


def _results(check: CheckResult, rows: Sequence[Row], rules: Rules | None) -> list[list[list[_Result]]]:
    """Returns the results of our runs for each comparison and each of its rivals, at the levels of `levels`.

    Our run of the first method is compared with our run of the rival, or with the rival's published number. Complete
    runs are not compared with incomplete ones.
    """
    ours: dict[tuple[str, ...], list[Row]] = {}
    for row in rows if check.comparisons else ():
        if row.published and row.interval is not None:
            ours.setdefault(row.published.place, []).append(row)
    results, rules, count = [], rules or Rules(), len(check.comparisons)
    least = (count if check.min_wins is None else check.min_wins) if check.max_wins is None else check.max_wins + 1
    for comparison in check.comparisons:
        won, lost = (
            rules.model_copy(update={"level": part * rules.level})
            for part in levels(count, min(least, count), len(comparison.rivals), comparison.rank)
        )
        by_rival = []
        for rival in comparison.rivals:
            complete = [row for row in ours.get(rival, ()) if not row.provisional]
            mine = []
            for row in ours.get(comparison.ours, ()):
                rivals = complete or (ours.get(rival, []) if row.provisional else [])
                word = compared(row, lookup(*rival), rivals, won).word
                if word == ClaimWord.FAILS or (word == ClaimWord.UNDECIDED and lost.level > won.level):
                    at_loss = compared(row, lookup(*rival), rivals, lost).word
                    word = at_loss if word == ClaimWord.FAILS or at_loss == ClaimWord.FAILS else word
                sides = (one.summary for one in (row, *rivals))
                short = min(sides, key=lambda side: side.runs / max(side.full, 1))
                mine.append(_Result(word, short.runs, short.full))
            by_rival.append(mine)
        results.append(by_rival)
    return results


def _of(comparison: RivalComparison, results: Sequence[Sequence[_Result]]) -> ClaimWord | None:
    """Returns the outcome; it is undecided if two recipes of one rival differ. None where nothing was run."""
    words = [{result.word for result in by_rival} for by_rival in results]
    if not any(words):
        return None
    if sum(by_rival == {ClaimWord.FAILS} for by_rival in words) >= comparison.rank:
        return ClaimWord.FAILS
    won = sum(by_rival != {ClaimWord.HOLDS} for by_rival in words) < comparison.rank
    return ClaimWord.HOLDS if won else ClaimWord.UNDECIDED


def _name(comparison: RivalComparison, results: Sequence[Sequence[_Result]]) -> str:
    """Returns both sides of a comparison and its column.

    Of several rivals, those that are ahead in our runs are named, or else those that are not beaten.
    """
    words = [{result.word for result in by_rival} for by_rival in results]
    ahead, level = (
        [rival for rival, its in zip(comparison.rivals, words, strict=True) if word in its]
        for word in (ClaimWord.FAILS, ClaimWord.UNDECIDED)
    )
    shown = ahead or level or comparison.rivals
    rivals = shown[0][2] if len(shown) == 1 else f"{shown[0][2]} and {len(shown) - 1} others"
    _, _, method, dataset, metric, split = comparison.ours
    return f"{method} and {rivals} on {dataset} ({metric}, {split})"


def _provisional(
    names: Sequence[str], pairs: Sequence[tuple[RivalComparison, Sequence[Sequence[_Result]]]]
) -> list[str]:
    """Returns a phrase on the result of incomplete runs, none if there are none."""
    provisional: list[tuple[str, ClaimWord]] = []
    runs: set[tuple[int, int]] = set()
    for name, (comparison, by_rival) in zip(names, pairs, strict=True):
        partial = {(result.runs, result.full) for its in by_rival for result in its if not result.complete}
        if partial and (word := _of(comparison, by_rival)):
            provisional.append((name, word))
            runs |= partial
    if not provisional:
        return []
    words = [word for _, word in provisional]
    labels = {ClaimWord.HOLDS: "hold", ClaimWord.FAILS: "fail", ClaimWord.UNDECIDED: "undecided"}
    counts = ", ".join(f"{words.count(word)} {short}" for word, short in labels.items() if word in words)
    other = [f"{labels[word]}: {name}" for name, word in provisional if word != ClaimWord.HOLDS]
    first = f" ({'; '.join(other[:3])}{' ...' if len(other) > 3 else ''})" if other else ""
    by = " and ".join(f"{some} of {full} runs" for some, full in sorted(runs))
    return [f"provisional, by {by}, of {len(names)} comparisons: {counts}{first}"]


def needs_data(claim: Claim) -> bool:
    """Returns whether the check of a claim reads packed datasets, which may be unavailable."""
    return claim.test is not None and "data" in signature(find_check(claim.test.kind)).parameters


def evaluate_claims(
    claims: Sequence[Claim], rows: Sequence[Row] = (), data: Path = Path("data"), rules: Rules | None = None
) -> dict[str, Evaluation]:
    """Returns the verdict on each claim by its id.

    Raises:
        RecipeError: as for `evaluate_claim`.
    """
    return {claim.id: evaluate_claim(claim, rows, data, rules=rules) for claim in claims}
