"""The claims with their verdicts as people read them: a Markdown table, the terminal, docs/claims.md."""

from collections.abc import Mapping, Sequence

from gt_bench.claims.evaluate import FAILS, HOLDS, NOT_TESTED, PRINT, UNDECIDED, Claim
from gt_bench.utils.format import markdown_line


def table_of(claims: Sequence[Claim], verdicts: Mapping[str, tuple[str, str]]) -> list[str]:
    """The claims as a Markdown table, paper by paper, with a line of counts."""
    lines = ["| paper | place | claim | verdict | why |", "| --- | --- | --- | --- | --- |"]
    for claim in claims:
        verdict, why = verdicts[claim.id]
        why += f" (read as: {claim.note})" if claim.note else ""
        texts = (claim.paper, claim.place, claim.sentence, verdict, why)
        lines.append(markdown_line(texts))
    counts = {
        word: sum(v == word for v, _ in verdicts.values()) for word in (HOLDS, PRINT, FAILS, UNDECIDED, NOT_TESTED)
    }
    return [*lines, "", f"{len(claims)} claims: " + ", ".join(f"{n} {word}" for word, n in counts.items() if n) + "."]


def show(claims: Sequence[Claim], verdicts: Mapping[str, tuple[str, str]]) -> None:
    """The claims on the terminal."""
    from gt_bench.leaderboard.terminal import print_table

    texts = [(claim.paper, claim.place, claim.sentence, *verdicts[claim.id]) for claim in claims]
    print_table(
        ("paper", "place", "claim", "verdict", "why"),
        texts,
        "claim",
        "verdict",
        "why",
        wrapped=("place", "claim", "verdict", "why"),
    )
    print(table_of(claims, verdicts)[-1])


def page(claims: Sequence[Claim], verdicts: Mapping[str, tuple[str, str]]) -> str:
    """docs/claims.md."""
    head = [
        "# What the papers say, checked",
        "",
        "Made by `gt-bench claims --write docs/claims.md` from the claims.yaml of the suites, the printed numbers, the shipped records and the data at hand;",
        "docs/verdicts.md says what the words mean.",
        "",
    ]
    return "\n".join([*head, *table_of(claims, verdicts)]) + "\n"
