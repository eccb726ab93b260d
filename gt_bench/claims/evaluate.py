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
from inspect import signature
from pathlib import Path
from typing import Literal

from pydantic import ValidationError

from gt_bench.claims.checks.registry import SUITE_CHECKS, CheckResult, Comparison, all_checks, find_check, is_withheld
from gt_bench.config.schema import RecipeError, Strict, nearest, read_yaml, validated
from gt_bench.config.verdict_settings import Rules
from gt_bench.leaderboard.verdicts import compared, runs_in_full
from gt_bench.papers.published import PublishedError, lookup
from gt_bench.schemas import Row
from gt_bench.utils.paths import suite_folders

CLAIMS = "claims.yaml"  # in the folder of a suite
HOLDS, AS_PUBLISHED, FAILS, UNDECIDED, NOT_TESTED = "holds", "agrees in the paper", "fails", "undecided", "not tested"
INCONSISTENT = "inconsistent in the paper"
VERDICTS = (HOLDS, AS_PUBLISHED, FAILS, INCONSISTENT, UNDECIDED, NOT_TESTED)


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
        raise RecipeError(f"{both}: two claims are named {twice[0]!r}")
    return claims


def claims_of(paper: str, folder: Path) -> list[Claim]:
    """Returns the claims of a paper, none if its folder has no claims.yaml.

    Raises:
        RecipeError: a claim is invalid or names an unknown check.
    """
    path = folder / CLAIMS
    if not path.exists():
        return []
    content = validated(Claims, read_yaml(path), str(path)).claims
    claims = [validated(Claim, {"paper": paper, **claim}, f"{path}: claim {n}") for n, claim in enumerate(content, 1)]
    kinds = all_checks()
    # a claim may use a check of another suite
    if codes := [str(other / SUITE_CHECKS) for other in suite_folders().values() if is_withheld(other)]:
        needs = f"--trust, which runs {', '.join(codes)}: code from outside the benchmark, read it first"
        withheld = {"test": None, "needs": needs}
        claims = [c.model_copy(update=withheld) if c.test and c.test.kind not in kinds else c for c in claims]
    for claim in claims:
        if claim.test and claim.test.kind not in kinds:
            raise RecipeError(
                f"{path}: {claim.id}: unknown kind of test {claim.test.kind!r}{nearest(claim.test.kind, list(kinds))}"
            )
        if not claim.test and not claim.needs:
            raise RecipeError(f"{path}: {claim.id}: expected a key `test`, or `needs` with what a test would require")
    return claims


def evaluate_claim(
    claim: Claim, rows: Sequence[Row] = (), data: Path = Path("data"), path: str = CLAIMS, rules: Rules | None = None
) -> tuple[str, str]:
    """Evaluates one claim; arguments, result and errors as of `_evaluated`. Data that were made here are named."""
    verdict, why = _evaluated(claim, rows, data, path, rules)
    made = claim.made_here and verdict != NOT_TESTED
    return verdict, f"on data made here ({claim.made_here}): {why}" if made else why


def _evaluated(claim: Claim, rows: Sequence[Row], data: Path, path: str, rules: Rules | None) -> tuple[str, str]:
    """Evaluates one claim.

    Args:
        claim: the claim.
        rows: rows of the leaderboards, for claims that runs can decide. Rows whose epoch was chosen on the test split
            do not count.
        data: folder that contains packed/.
        path: file of the claim, for messages.
        rules: rules of verdicts (`run.verdict` of params.yaml).

    Returns:
        (verdict, reason).

    Raises:
        RecipeError: the claim refers to a number that is not published, or has invalid arguments.
    """
    if claim.test is None:
        return NOT_TESTED, f"needs {claim.needs}"
    test = find_check(claim.test.kind)
    parameters = signature(test).parameters
    rows = [row for row in rows if not row["chosen_on_test"]]
    arguments = claim.test.arguments | {k: v for k, v in {"data": data, "rows": rows}.items() if k in parameters}
    try:
        found = test(paper=claim.paper, **arguments)
    except PublishedError as error:
        raise RecipeError(f"{path}: {claim.id}: {error}") from None
    except ValidationError as error:
        first = error.errors()[0]
        said = f"{'.'.join(map(str, first['loc']))}: {first['msg']}"
        raise RecipeError(f"{path}: {claim.id}: invalid arguments of the test {claim.test.kind}: {said}") from None
    except TypeError as error:
        raise RecipeError(f"{path}: {claim.id}: invalid arguments of the test {claim.test.kind}: {error}") from None
    if not found.computed:
        return NOT_TESTED, found.reason
    if found.holds is None:
        return UNDECIDED, found.reason
    if not found.holds:
        return INCONSISTENT if found.internal else FAILS, found.reason
    if found.confirmed:
        return HOLDS, found.reason
    return _by_runs(found, rows, rules)


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


def _by_runs(found: CheckResult, rows: Sequence[Row], rules: Rules | None) -> tuple[str, str]:
    """Returns the verdict on a claim that agrees with the published numbers, by our runs.

    Complete runs decide. The result of incomplete runs is added to the reason and marked as provisional. The level is
    divided among the comparisons (`levels`).
    """
    pairs = list(zip(found.comparisons, _words(found, rows, rules), strict=True))
    outcomes, names = [_outcome(*pair) for pair in pairs], [_name(*pair) for pair in pairs]
    decided = [complete for complete, _ in outcomes]
    count = len(decided)
    wins, losses = decided.count(WON), decided.count(LOST)
    if found.max_wins is None:
        least = count if found.min_wins is None else found.min_wins
        failed, holds = losses > count - least, bool(count) and wins >= least
    else:
        # a method that complete runs do not show to be better supports the claim
        failed, holds = wins > found.max_wins, bool(count) and count - losses - decided.count(OPEN) <= found.max_wins
    if failed:
        against = [
            name for name, word in zip(names, decided, strict=True) if word == (LOST if found.max_wins is None else WON)
        ]
        wanted = f"; the claim needs {least} of {count}" if found.max_wins is None and least < count else ""
        return (
            FAILS,
            f"our runs: claim fails in {len(against)} of {count} comparisons{wanted}: {'; '.join(against[:3])}",
        )
    if holds:
        if found.max_wins is not None:
            return HOLDS, f"our runs: better in {wins} of {count} comparisons, at most {found.max_wins} by the claim"
        return HOLDS, f"our runs: claim holds in {'all ' if wins == count else f'{wins} of '}{count} comparisons"
    if any(decided):
        return UNDECIDED, f"as published: {found.reason}; runs have decided {wins + losses} of {count} comparisons"
    return AS_PUBLISHED, "; ".join(
        [found.reason, *_provisional(names, [partial_values for _, partial_values in outcomes])]
    )


WON, LOST, OPEN = "won", "lost", "open"
_SAYS = {"claim holds": WON, "claim fails": LOST, "undecided": OPEN}


def _words(found: CheckResult, rows: Sequence[Row], rules: Rules | None) -> list[list[set[str]]]:
    """Returns the results of our runs for each comparison and each of its rivals, at the levels of `levels`.

    Our run of the first method is compared with our run of the rival, or with the rival's published number. A result
    ends in ", n of m runs" if a side is incomplete. Complete runs are not compared with incomplete ones.
    """
    ours: dict[tuple[str, ...], list[Row]] = {}
    for row in rows if found.comparisons else ():
        if row["published_place"] and row["mean"] is not None and row["interval_low"] is not None:
            ours.setdefault(tuple(row["published_place"]), []).append(row)
    said, rules, count = [], rules or Rules(), len(found.comparisons)
    least = (count if found.min_wins is None else found.min_wins) if found.max_wins is None else found.max_wins + 1
    for comparison in found.comparisons:
        by_rival = []
        won, lost = (
            rules.model_copy(update={"level": part * rules.level})
            for part in levels(count, min(least, count), len(comparison.rivals), comparison.rank)
        )
        for rival in comparison.rivals:
            complete = [row for row in ours.get(rival, ()) if not row["provisional"]]
            words = set()
            for row in ours.get(comparison.ours, ()):
                rivals = complete or (ours.get(rival, []) if row["provisional"] else [])
                word = compared(row, lookup(*rival), rivals, won).word
                if word == "claim fails":
                    word = compared(row, lookup(*rival), rivals, lost).word
                elif word == "undecided" and lost.level > won.level:
                    failed = compared(row, lookup(*rival), rivals, lost).word
                    word = failed if failed == "claim fails" else word
                short = min([row, *rivals], key=lambda one: one["runs"] / runs_in_full(one))
                full = runs_in_full(short)
                words.add(f"{word}, {short['runs']} of {full} runs" if short["runs"] < full else word)
            by_rival.append(words)
        said.append(by_rival)
    return said


def _outcome(comparison: Comparison, words: Sequence[set[str]]) -> tuple[str | None, tuple[str, str] | None]:
    """Returns (outcome by complete runs, (outcome by all runs so far, how many runs)). None where nothing was run."""
    complete = [{_SAYS[word] for word in by_rival & _SAYS.keys()} for by_rival in words]
    partial_values = [{_SAYS[word.partition(", ")[0]] for word in by_rival} for by_rival in words]
    runs = sorted({word.partition(", ")[2] for by_rival in words for word in by_rival if ", " in word})
    return _of(comparison, complete), (
        (said, " and ".join(runs)) if runs and (said := _of(comparison, partial_values)) else None
    )


def _of(comparison: Comparison, words: Sequence[set[str]]) -> str | None:
    """Returns the outcome; it is open if two recipes of one rival differ."""
    if not any(words):
        return None
    if sum(by_rival == {LOST} for by_rival in words) >= comparison.rank:
        return LOST
    return WON if sum(by_rival != {WON} for by_rival in words) < comparison.rank else OPEN


def _name(comparison: Comparison, words: Sequence[set[str]]) -> str:
    """Returns both sides of a comparison and its column.

    Of several rivals, those that are ahead in our runs are named, or else those that are not beaten.
    """
    pairs = list(zip(comparison.rivals, words, strict=True))
    ahead = [rival for rival, said in pairs if any(word.startswith("claim fails") for word in said)]
    level = [rival for rival, said in pairs if any(word.startswith("undecided") for word in said)]
    shown = ahead or level or comparison.rivals
    rivals = shown[0][2] if len(shown) == 1 else f"{shown[0][2]} and {len(shown) - 1} others"
    _, _, method, dataset, metric, split = comparison.ours
    return f"{method} and {rivals} on {dataset} ({metric}, {split})"


def _provisional(names: Sequence[str], said: Sequence[tuple[str, str] | None]) -> list[str]:
    """Returns a phrase on the result of incomplete runs, none if there are none."""
    found = [(name, *one) for name, one in zip(names, said, strict=True) if one]
    if not found:
        return []
    words = [word for _, word, _ in found]
    labels = {WON: "hold", LOST: "fail", OPEN: "undecided"}
    counts = ", ".join(f"{words.count(word)} {short}" for word, short in labels.items() if word in words)
    other = [f"{labels[word]}: {name}" for name, word, _ in found if word != WON]
    first = f" ({'; '.join(other[:3])}{' ...' if len(other) > 3 else ''})" if other else ""
    return [
        f"provisional, by {' and '.join(sorted({runs for *_, runs in found}))}, of {len(said)} comparisons: "
        f"{counts}{first}"
    ]


def needs_data(claim: Claim) -> bool:
    """Returns whether the check of a claim reads packed datasets, which may be unavailable."""
    return claim.test is not None and "data" in signature(find_check(claim.test.kind)).parameters


def evaluate_claims(
    claims: Sequence[Claim], rows: Sequence[Row] = (), data: Path = Path("data"), rules: Rules | None = None
) -> dict[str, tuple[str, str]]:
    """Returns (verdict, reason) of each claim by its id.

    Raises:
        RecipeError: as for `evaluate_claim`.
    """
    return {claim.id: evaluate_claim(claim, rows, data, rules=rules) for claim in claims}
