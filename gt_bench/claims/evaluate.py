"""What the papers say in words, checked: each sentence of suites/PAPER/claims.yaml has a verdict that is computed, never typed in.

  holds                  shown by data, by a computation (gt_bench/claims/experiments) or by complete runs of ours
  holds in print alone   the paper's own numbers agree with the sentence; nothing here was run for it, or not all that it takes
  fails                  the paper's own numbers, the data, a computation, or complete runs of ours contradict it
  undecided              it was tried, and what there is does not decide
  not tested             no test is built, and `needs` says what one would take; or what it takes was not computed, and the command stands there
A kind of test is one function, registered by name: on printed numbers (printed_claims.py), on data (homophily_claims.py, brec_claims.py), on what was
computed (theorem_claims.py, experiment_claims.py, trained_claims.py).
"""

from collections.abc import Sequence
from inspect import signature
from pathlib import Path

from pydantic import ValidationError

from gt_bench.claims.checks import brec, experiments, homophily, printed, theorems, trained  # noqa: F401 (they register their tests)
from gt_bench.claims.checks.registry import TESTS, Found
from gt_bench.config.schema import RecipeError, Strict, nearest, read_yaml, validated
from gt_bench.config.verdict_settings import Rules
from gt_bench.leaderboard.verdicts import compared, runs_in_full
from gt_bench.papers.published import PublishedError, lookup
from gt_bench.schemas import Row
from gt_bench.utils.paths import suite_folders

CLAIMS = "claims.yaml"  # in the folder of a suite
HOLDS, PRINT, FAILS, UNDECIDED, NOT_TESTED = "holds", "holds in print alone", "fails", "undecided", "not tested"


class Test(Strict):
    """`kind`: a name in TESTS; `arguments` of that function."""

    kind: str
    arguments: dict[str, object] = {}


class Claim(Strict):
    """A sentence of a paper. `needs`: data or runs that the verdict takes besides what is printed; of a claim without a test, what a test would take.
    `note`: how the sentence is read where it leaves room."""

    id: str
    paper: str
    place: str
    sentence: str
    test: Test | None = None
    needs: str | None = None
    note: str | None = None


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
    for claim in claims:
        if claim.test and claim.test.kind not in TESTS:
            raise RecipeError(
                f"{path}: {claim.id}: no kind of test {claim.test.kind!r}{nearest(claim.test.kind, list(TESTS))}"
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
    arguments = claim.test.arguments | ({"data": data} if takes_data(claim) else {})
    try:
        found = TESTS[claim.test.kind](paper=claim.paper, **arguments)
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
        return FAILS, found.why
    if found.shown:
        return HOLDS, found.why
    return _by_runs(found, rows, rules)


def _by_runs(found: Found, rows: Sequence[Row], rules: Rules | None) -> tuple[str, str]:
    """What holds in print, by the leaderboard's verdicts on its columns and by our runs of its pairs: complete ones decide. What the others say is added, marked as provisional."""
    names = [f"{place[2]} on {place[3]} ({place[4]})" for place in found.columns]
    names += [f"{better[2]} and {worse[2]} on {better[3]} ({better[4]}, {better[5]})" for better, worse in found.pairs]
    said = [_words(words) for words in (*_of_columns(found, rows), *_of_pairs(found, rows, rules))]
    decided = [complete for complete, _ in said]
    what = "columns" if found.columns else "comparisons"
    if any(word == {"claim fails"} for word in decided):
        return FAILS, f"our runs of {names[decided.index({'claim fails'})]}: claim fails"
    if decided and all(word == {"claim holds"} for word in decided):
        return HOLDS, f"our runs: claim holds in all {len(decided)} {what}"
    if any(decided):
        count = sum(len(w) == 1 and w != {"undecided"} for w in decided)
        return UNDECIDED, f"in print {found.why}; runs have decided {count} of {len(decided)} {what}"
    return PRINT, "; ".join([found.why, *_provisional(names, [so_far for _, so_far in said], what)])


def _of_columns(found: Found, rows: Sequence[Row]) -> list[set[str]]:
    """By column what the leaderboard says of the claim to be best there."""
    words: dict[tuple[str, ...], set[str]] = {}
    for row in rows:
        if row["published_place"] and row["claim"]:
            words.setdefault(tuple(row["published_place"]), set()).add(row["claim"])
    return [words.get(place, set()) for place in found.columns]


def _of_pairs(found: Found, rows: Sequence[Row], rules: Rules | None) -> list[set[str]]:
    """By pair whether our runs of the first are better than our runs of the second, or than its print; none where the first was not run. Complete runs are not held
    against incomplete ones."""
    ours: dict[tuple[str, ...], list[Row]] = {}
    for row in rows if found.pairs else ():
        if row["published_place"] and row["mean"] is not None and row["interval_low"] is not None:
            ours.setdefault(tuple(row["published_place"]), []).append(row)
    said = []
    for better, worse in found.pairs:
        complete = [row for row in ours.get(worse, ()) if not row["provisional"]]
        words = set()
        for row in ours.get(better, ()):
            rivals = complete or (ours.get(worse, []) if row["provisional"] else [])
            word = compared(row, lookup(*worse), rivals, rules).word
            short = min([row, *rivals], key=lambda one: one["runs"] / runs_in_full(one))
            words.add(
                f"{word}, {short['runs']} of {runs_in_full(short)} runs"
                if short["runs"] < runs_in_full(short)
                else word
            )
        said.append(words)
    return said


def _words(words: set[str]) -> tuple[set[str], set[str]]:
    """Those of complete runs, and those of others."""
    complete = words & {"claim holds", "claim fails", "undecided"}
    return complete, {
        word for word in words - complete if word.startswith(("claim holds, ", "claim fails, ", "undecided, "))
    }


def _provisional(names: Sequence[str], said: Sequence[set[str]], what: str) -> list[str]:
    """A phrase on what incomplete runs say; none where there are none."""
    there = [
        (name, word, runs)
        for name, words in zip(names, said, strict=True)
        for word, _, runs in (w.partition(", ") for w in sorted(words))
    ]
    if not there:
        return []
    words = [word for _, word, _ in there]
    says = {"claim holds": "hold", "claim fails": "fail", "undecided": "undecided"}
    counts = ", ".join(f"{words.count(word)} {short}" for word, short in says.items() if word in words)
    other = [f"{says[word]}: {name}" for name, word, _ in there if word != "claim holds"]
    first = f" ({'; '.join(other[:3])}{' ...' if len(other) > 3 else ''})" if other else ""
    return [
        f"provisional, by {' and '.join(sorted({runs for *_, runs in there}))}, of {len(said)} {what}: {counts}{first}"
    ]


def takes_data(claim: Claim) -> bool:
    """Whether its test reads packed datasets, which are not everywhere."""
    return claim.test is not None and "data" in signature(TESTS[claim.test.kind]).parameters


def verdicts_of(
    claims: Sequence[Claim], rows: Sequence[Row] = (), data: Path = Path("data"), rules: Rules | None = None
) -> dict[str, tuple[str, str]]:
    """(verdict, why) by id. Raises RecipeError."""
    return {claim.id: judged(claim, rows, data, rules=rules) for claim in claims}
