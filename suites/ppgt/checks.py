"""Tests of claims of PPGT by what experiments/ computed."""

from gt_bench.claims.checks.experiment_values import of, percentages, so_far
from gt_bench.claims.checks.registry import Found, test
from gt_bench.claims.experiments import registry


@test
def nearest_key(paper: str, form: str) -> Found:
    """The largest score of `form` is the nearest key's in every draw."""
    found = of("nearest_key")[form]
    shares = [value["nearest"] for value in found.values()]
    return Found(
        min(shares) == 1.0,
        f"{form}, the largest score is the nearest key's in {percentages(shares)} of draws",
        shown=True,
    )


@test
def fewer_long_keys(paper: str, form: str) -> Found:
    """The longest key gets the largest score in fewer draws under `form` than under scaled dot products, for every width and number of keys."""
    found, dots = of("nearest_key")[form], of("nearest_key")["scaled dot product"]
    ours, theirs = ([value["longest"] for value in values.values()] for values in (found, dots))
    fewer = all(a < b for a, b in zip(ours, theirs, strict=True))
    return Found(
        fewer,
        f"the longest key has the largest score in {percentages(ours)} of draws, by scaled dot products in {percentages(theirs)}",
        shown=True,
    )


@test
def magnitude_kept(paper: str, norm: str, kept: bool, most: float = 0.1, least: float = 0.5) -> Found:
    """Auto-encoders with `norm` recover magnitudes (`kept`: an error of at most `most` of their spread) or lose them (at least `least`); None where it hangs on
    what is unprinted: width and bias."""
    found = {
        case.partition(", ")[2]: value["magnitude"]
        for case, value in of("auto_encoders").beginning(f"{norm}, ").items()
    }
    right = [error <= most if kept else error >= least for error in found.values()]
    said = ", ".join(f"{setting} {error:.2g}" for setting, error in found.items())
    return Found(
        True if all(right) else None if any(right) else False,
        f"error of the magnitude over its spread, {norm}: {said}",
        shown=True,
    )


@test
def trains_or_crashes(paper: str, crashes: dict[str, bool]) -> Found:
    """Each run of Table 13 (norm, learning rate) crashes or trains as printed."""
    found = so_far("stress_test", crashes)
    if missing := [case for case in crashes if case not in found]:
        cases = " ".join(f"--case {case!r}" for case in missing)
        return Found(
            None,
            f"needs {len(missing)} runs of an hour of one core: `{registry.command('stress_test')} {cases}`",
            tried=False,
        )

    def said(case: str) -> str:
        value = found[case]
        if value["status"] != "ok":
            return f"{case} {value['status']} in epoch {value['epochs'] + 1}"
        return f"{case} {'crashes' if value['crashed'] else 'trains'} (training loss {value['losses'][0]:.2f} to {value['losses'][-1]:.2f})"

    right = all(found[case]["crashed"] == printed for case, printed in crashes.items())
    return Found(right, f"one seed: {', '.join(map(said, crashes))}", shown=True)
