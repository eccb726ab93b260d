"""A ranking as a table, as sentences below it, and as JSON."""

from collections.abc import Sequence

from gt_bench.analysis.dataset_numbers import ALL
from gt_bench.analysis.rank import PAIRS, WORST, Ranked, Ranking
from gt_bench.stats import ranking
from gt_bench.utils.format import print_text
from gt_bench.utils.terminal import print_table, print_wrapped


def show(result: Ranking, source: str, remarks: Sequence[str], level: float = 0.05) -> None:
    """Prints a ranking. It fits 80 columns."""
    mixed = any(ranked.published for ranked in result.models)
    heads = ["model", "Elo [95 %]", "win rate", "rank", "n", *(["published"] if mixed and source == ALL else [])]
    rows = []
    for ranked in result.models:
        cells = [ranked.model, strength(ranked), "–" if ranked.win_rate is None else f"{100 * ranked.win_rate:.0f} %"]
        cells += ["–" if ranked.rank is None else f"{ranked.rank:.2f}", str(ranked.datasets)]
        rows.append(cells + ([str(ranked.published)] if mixed and source == ALL else []))
    print_text(f"{_count(len(result.models), 'model')} on {_count(result.datasets, 'dataset')}, source: {source}")
    print_table(heads, rows, "model", "Elo [95 %]", "win rate", "rank", "n", right=("rank", "n", "win rate"))
    for line in [*lines(result, level), *remarks]:
        print_wrapped(line)


def strength(ranked: Ranked) -> str:
    """Returns the strength of a model with its interval, as text."""
    return f"{ranked.elo:.0f} " + (
        "[–]" if ranked.interval is None else f"[{ranked.interval[0]:.0f}, {ranked.interval[1]:.0f}]"
    )


def _count(number: int, what: str) -> str:
    return f"{number} {what}{'' if number == 1 else 's'}"


def lines(result: Ranking, level: float = 0.05) -> list[str]:
    """Returns what the table does not show: rules, tests, and whether the rule for missing results matters."""
    total = len(result.blocks) * len(result.models)
    rule = (
        "a pair counts where both have a result; ranks: datasets that all models have"
        if result.rule == PAIRS
        else "a missing result counts as worse than every known one"
    )
    said = [f"missing: {result.missing} of {total} results. Rule `{result.rule}`: {rule}."]
    if result.missing:
        said.append(f"`--missing {WORST if result.rule == PAIRS else PAIRS}` {other_order(result)}.")
    if any(ranked.interval is None for ranked in result.models):
        said.append(
            f"[–]: no interval: it won or lost every comparison, or there are fewer than {ranking.FEWEST} datasets"
        )
    if not result.ranked_datasets:
        said.append("rank: no dataset has all models; choose --models, or --missing worst")
    elif result.ranked_datasets < ranking.FEWEST:
        said.append(f"ranks over {_count(result.ranked_datasets, 'dataset')}: a test needs {ranking.FEWEST}")
    elif result.critical is not None:
        p = "" if result.p_value is None else f"Friedman p = {result.p_value:.2g}; "
        said.append(
            f"ranks over {result.ranked_datasets} datasets: {p}ranks that differ by less than {result.critical:.2f} do "
            f"not differ significantly (Nemenyi, {level:g})"
        )
    if result.tested:
        pairs = "; ".join(f"{better} > {worse} (p = {p:.2g})" for better, worse, p in result.different[:5])
        more = f"; and {len(result.different) - 5} more" if len(result.different) > 5 else ""
        said.append(
            f"Wilcoxon with Holm: {len(result.different)} of {result.tested} pairs differ"
            f"{': ' if pairs else ''}{pairs}{more}"
        )
    return said + [f"left out, {why}: {', '.join(models)}" for why, models in result.left_out.items()]


def other_order(result: Ranking) -> str:
    """Returns what the other rule for missing results gives: the same order, or another one."""
    if result.agreement is not None and result.agreement > 1 - 1e-12:
        return "gives the same order"
    first = result.other_first if result.other_first != result.models[0].model else "the same model"
    return f"gives another order (Kendall's tau {result.agreement or 0:.2f}), with {first} first"


def as_json(result: Ranking, source: str, remarks: Sequence[str]) -> dict[str, object]:
    """Returns a ranking as documented in docs/json_output.md."""
    return {
        **vars(result),
        "models": [vars(ranked) for ranked in result.models],
        "blocks": [block._asdict() for block in result.blocks],
        "source": source,
        "remarks": list(remarks),
    }
