"""What the papers say in words, tested: each claim of suites/PAPER/claims.yaml has a verdict that is computed.

  holds                         data, a computation (gt_bench/claims/experiments) or complete runs of ours show it
  holds in print alone          the paper's own numbers agree with it; nothing was run for it, or not all that it needs
  fails                         the paper's own numbers, the data, a computation or complete runs of ours contradict it
  inconsistent in the paper     two statements of the paper contradict each other; which of them is right is not known
  undecided                     it was tried, and the result does not decide
  not tested                    no test exists, and `needs` says what one needs; or its runs were not computed, and the command is given

A kind of test is a function registered by name: those of gt_bench/claims/checks/ suit any paper, those of suites/PAPER/checks.py judge what its
experiments computed.
"""

from collections.abc import Sequence
from inspect import signature
from pathlib import Path
from typing import Literal

from pydantic import ValidationError

from gt_bench.claims.checks.registry import Contest, Found, all_tests, find_test
from gt_bench.config.schema import RecipeError, Strict, nearest, read_yaml, validated
from gt_bench.config.verdict_settings import Rules
from gt_bench.leaderboard.verdicts import compared, runs_in_full
from gt_bench.papers.published import PublishedError, lookup
from gt_bench.schemas import Row
from gt_bench.utils.paths import suite_folders

CLAIMS = "claims.yaml"  # in the folder of a suite
HOLDS, PRINT, FAILS, UNDECIDED, NOT_TESTED = "holds", "holds in print alone", "fails", "undecided", "not tested"
INCONSISTENT = "inconsistent in the paper"
VERDICTS = (HOLDS, PRINT, FAILS, INCONSISTENT, UNDECIDED, NOT_TESTED)


class Test(Strict):
    """`kind`: name of a test (`all_tests`); `arguments` of that function."""

    kind: str
    arguments: dict[str, object] = {}


class Claim(Strict):
    """A claim of a paper.

    Attributes:
        id: Its name.
        paper: The paper.
        place: Where the paper says it.
        sentence: What the paper says, word for word; formulas are written in plain text.
        said: `quoted`; `read off`: the sentence says in words what a table, an equation or the released code has; `asked here`: a question
            that the paper does not raise.
        case: The part of the sentence that is tested, where it says several things.
        test: The test that decides it.
        needs: Data or runs that the verdict needs besides published numbers; for a claim without a test, what a test would need.
        note: How the sentence is read where it is ambiguous.
    """

    id: str
    paper: str
    place: str
    sentence: str
    said: Literal["quoted", "read off", "asked here"] = "quoted"
    case: str | None = None
    test: Test | None = None
    needs: str | None = None
    note: str | None = None

    @property
    def text(self) -> str:
        """The sentence as shown: in quotation marks only if the paper says it, with the case that is tested."""
        words = f"“{self.sentence}”" if self.said == "quoted" else f"{self.sentence} ({self.said})"
        return f"{words} [{self.case}]" if self.case else words


class Claims(Strict):
    """The content of a claims.yaml; a claim there names no paper, which is the folder's."""

    claims: list[dict[str, object]]


def load_claims() -> list[Claim]:
    """The claims of all suites. Raises RecipeError as `claims_of`, and for two of one id."""
    claims = [claim for paper, folder in suite_folders().items() for claim in claims_of(paper, folder)]
    ids = [claim.id for claim in claims]
    if twice := sorted({i for i in ids if ids.count(i) > 1}):
        both = " and ".join(f"{claim.paper}/{CLAIMS}" for claim in claims if claim.id == twice[0])
        raise RecipeError(f"{both}: two claims are named {twice[0]!r}")
    return claims


def claims_of(paper: str, folder: Path) -> list[Claim]:
    """The claims of a paper; none where its folder has no claims.yaml. Raises RecipeError for a claim of another form, or a test that does
    not exist."""
    path = folder / CLAIMS
    if not path.exists():
        return []
    content = validated(Claims, read_yaml(path), str(path)).claims
    claims = [validated(Claim, {"paper": paper, **claim}, f"{path}: claim {n}") for n, claim in enumerate(content, 1)]
    kinds = all_tests()
    for claim in claims:
        if claim.test and claim.test.kind not in kinds:
            raise RecipeError(
                f"{path}: {claim.id}: no kind of test {claim.test.kind!r}{nearest(claim.test.kind, list(kinds))}"
            )
        if not claim.test and not claim.needs:
            raise RecipeError(f"{path}: {claim.id}: has no test, and does not say what one needs")
    return claims


def judged(
    claim: Claim, rows: Sequence[Row] = (), data: Path = Path("data"), path: str = CLAIMS, rules: Rules | None = None
) -> tuple[str, str]:
    """(verdict, why) of one claim. `rows`: of the leaderboards, for claims that runs can decide; `data`: the folder with packed/; `rules`: those of
    verdicts (`run.verdict` of params.yaml). Raises RecipeError where it names a number that is
    not printed, or arguments that its test does not take."""
    if claim.test is None:
        return NOT_TESTED, f"needs {claim.needs}"
    test = find_test(claim.test.kind)
    parameters = signature(test).parameters
    arguments = claim.test.arguments | {k: v for k, v in {"data": data, "rows": rows}.items() if k in parameters}
    try:
        found = test(paper=claim.paper, **arguments)
    except PublishedError as error:
        raise RecipeError(f"{path}: {claim.id}: {error}") from None
    except ValidationError as error:
        first = error.errors()[0]
        said = f"{'.'.join(map(str, first['loc']))}: {first['msg']}"
        raise RecipeError(
            f"{path}: {claim.id}: the test {claim.test.kind} does not take these arguments: {said}"
        ) from None
    except TypeError as error:
        raise RecipeError(
            f"{path}: {claim.id}: the test {claim.test.kind} does not take these arguments: {error}"
        ) from None
    if not found.tried:
        return NOT_TESTED, found.why
    if found.true is None:
        return UNDECIDED, found.why
    if not found.true:
        return INCONSISTENT if found.internal else FAILS, found.why
    if found.shown:
        return HOLDS, found.why
    return _by_runs(found, rows, rules)


def _by_runs(found: Found, rows: Sequence[Row], rules: Rules | None) -> tuple[str, str]:
    """The verdict on a claim that agrees with the published numbers, by our runs.

    Complete runs decide. What incomplete runs say is added to the reason and marked as provisional.
    """
    outcomes = [
        _outcome(contest, words) for contest, words in zip(found.contests, _words(found, rows, rules), strict=True)
    ]
    names = [_name(contest, words) for contest, words in zip(found.contests, _words(found, rows, rules), strict=True)]
    decided = [complete for complete, _ in outcomes]
    count = len(decided)
    wins, losses = decided.count(WON), decided.count(LOST)
    if found.most is None:
        least = count if found.least is None else found.least
        failed, holds = losses > count - least, bool(count) and wins >= least
    else:
        # what is not shown to be better, by complete runs, counts for the claim
        failed, holds = wins > found.most, bool(count) and count - losses - decided.count(OPEN) <= found.most
    if failed:
        against = [
            name for name, word in zip(names, decided, strict=True) if word == (LOST if found.most is None else WON)
        ]
        wanted = f"; the claim needs {least} of {count}" if found.most is None and least < count else ""
        return (
            FAILS,
            f"our runs: claim fails in {len(against)} of {count} comparisons{wanted}: {'; '.join(against[:3])}",
        )
    if holds:
        if found.most is not None:
            return HOLDS, f"our runs: better in {wins} of {count} comparisons, at most {found.most} by the claim"
        return HOLDS, f"our runs: claim holds in {'all ' if wins == count else f'{wins} of '}{count} comparisons"
    if any(decided):
        return UNDECIDED, f"in print {found.why}; runs have decided {wins + losses} of {count} comparisons"
    return PRINT, "; ".join([found.why, *_provisional(names, [so_far for _, so_far in outcomes])])


WON, LOST, OPEN = "won", "lost", "open"
_SAYS = {"claim holds": WON, "claim fails": LOST, "undecided": OPEN}


def _words(found: Found, rows: Sequence[Row], rules: Rules | None) -> list[list[set[str]]]:
    """For each contest and each rival, what our runs say: is our run of the first better than our run of the rival, or than its published number?

    A word ends in ", n of m runs" if a side is incomplete. Complete runs are not compared with incomplete ones.
    """
    ours: dict[tuple[str, ...], list[Row]] = {}
    for row in rows if found.contests else ():
        if row["published_place"] and row["mean"] is not None and row["interval_low"] is not None:
            ours.setdefault(tuple(row["published_place"]), []).append(row)
    said = []
    for contest in found.contests:
        by_rival = []
        for rival in contest.rivals:
            complete = [row for row in ours.get(rival, ()) if not row["provisional"]]
            words = set()
            for row in ours.get(contest.ours, ()):
                rivals = complete or (ours.get(rival, []) if row["provisional"] else [])
                word = compared(row, lookup(*rival), rivals, rules).word
                short = min([row, *rivals], key=lambda one: one["runs"] / runs_in_full(one))
                full = runs_in_full(short)
                words.add(f"{word}, {short['runs']} of {full} runs" if short["runs"] < full else word)
            by_rival.append(words)
        said.append(by_rival)
    return said


def _outcome(contest: Contest, words: Sequence[set[str]]) -> tuple[str | None, tuple[str, str] | None]:
    """(what complete runs say of the contest, (what all runs say so far, how many runs)): won, lost or open; None where nothing was run."""
    complete = [{_SAYS[word] for word in by_rival & _SAYS.keys()} for by_rival in words]
    so_far = [{_SAYS[word.partition(", ")[0]] for word in by_rival} for by_rival in words]
    runs = sorted({word.partition(", ")[2] for by_rival in words for word in by_rival if ", " in word})
    return _of(contest, complete), ((said, " and ".join(runs)) if runs and (said := _of(contest, so_far)) else None)


def _of(contest: Contest, words: Sequence[set[str]]) -> str | None:
    """Two recipes of one rival that differ leave it open."""
    if not any(words):
        return None
    if sum(by_rival == {LOST} for by_rival in words) >= contest.rank:
        return LOST
    return WON if sum(by_rival != {WON} for by_rival in words) < contest.rank else OPEN


def _name(contest: Contest, words: Sequence[set[str]]) -> str:
    """Both sides of a contest and its column. Of several rivals those that are ahead in our runs are named, or else those that are not beaten."""
    pairs = list(zip(contest.rivals, words, strict=True))
    ahead = [rival for rival, said in pairs if any(word.startswith("claim fails") for word in said)]
    level = [rival for rival, said in pairs if any(word.startswith("undecided") for word in said)]
    shown = ahead or level or contest.rivals
    rivals = shown[0][2] if len(shown) == 1 else f"{shown[0][2]} and {len(shown) - 1} others"
    _, _, method, dataset, metric, split = contest.ours
    return f"{method} and {rivals} on {dataset} ({metric}, {split})"


def _provisional(names: Sequence[str], said: Sequence[tuple[str, str] | None]) -> list[str]:
    """A phrase on what incomplete runs say; none where there are none."""
    there = [(name, *one) for name, one in zip(names, said, strict=True) if one]
    if not there:
        return []
    words = [word for _, word, _ in there]
    says = {WON: "hold", LOST: "fail", OPEN: "undecided"}
    counts = ", ".join(f"{words.count(word)} {short}" for word, short in says.items() if word in words)
    other = [f"{says[word]}: {name}" for name, word, _ in there if word != WON]
    first = f" ({'; '.join(other[:3])}{' ...' if len(other) > 3 else ''})" if other else ""
    return [
        f"provisional, by {' and '.join(sorted({runs for *_, runs in there}))}, of {len(said)} comparisons: {counts}{first}"
    ]


def takes_data(claim: Claim) -> bool:
    """Whether its test reads packed datasets, which are not everywhere."""
    return claim.test is not None and "data" in signature(find_test(claim.test.kind)).parameters


def verdicts_of(
    claims: Sequence[Claim], rows: Sequence[Row] = (), data: Path = Path("data"), rules: Rules | None = None
) -> dict[str, tuple[str, str]]:
    """(verdict, why) by id. Raises RecipeError."""
    return {claim.id: judged(claim, rows, data, rules=rules) for claim in claims}
