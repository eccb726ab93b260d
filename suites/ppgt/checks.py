"""Checks of claims of PPGT, based on its experiments."""

from gt_bench.claims.checks.findings import load_cases, partial_values, percentages
from gt_bench.claims.checks.registry import CheckResult, register_check
from gt_bench.claims.experiments import registry

# cases of experiments/stress_test.py: norm and learning rate
STRESS_TEST = [
    f"{norm}, {rate}" for rate in ("7e-3", "1e-2", "2e-3", "7e-2") for norm in ("RMSN", "AdaRMSN", "Bad-AdaRMSN")
]


@register_check
def nearest_key(paper: str, form: str) -> CheckResult:
    """Checks that the nearest key has the largest score of `form` in every draw."""
    found = load_cases("nearest_key")[form]
    shares = [value["nearest"] for value in found.values()]
    return CheckResult(
        min(shares) == 1.0,
        f"{form}, the largest score is the nearest key's in {percentages(shares)} of draws",
        confirmed=True,
    )


@register_check
def fewer_long_keys(paper: str, form: str) -> CheckResult:
    """Checks that the longest key has the largest score in fewer draws than with scaled dot products.

    The check covers every width and number of keys.
    """
    found, dots = load_cases("nearest_key")[form], load_cases("nearest_key")["scaled dot product"]
    ours, theirs = ([value["longest"] for value in values.values()] for values in (found, dots))
    fewer = all(a < b for a, b in zip(ours, theirs, strict=True))
    return CheckResult(
        fewer,
        f"the longest key has the largest score in {percentages(ours)} of draws, by scaled dot products in "
        f"{percentages(theirs)}",
        confirmed=True,
    )


@register_check
def magnitude_kept(paper: str, norm: str, kept: bool, most: float = 0.1, least: float = 0.5) -> CheckResult:
    """Checks whether auto-encoders with `norm` recover the magnitude of their inputs.

    Args:
        paper: the paper of the claim.
        norm: the norm.
        kept: whether the claim is that magnitudes are recovered, or that they are lost.
        most: largest error, divided by the standard deviation of magnitudes, if they are recovered.
        least: smallest error if they are lost.

    Returns:
        None if the result depends on settings that the paper does not publish: width and bias.
    """
    found = {
        case.partition(", ")[2]: value["magnitude"]
        for case, value in load_cases("auto_encoders").with_prefix(f"{norm}, ").items()
    }
    right = [error <= most if kept else error >= least for error in found.values()]
    said = ", ".join(f"{setting} {error:.2g}" for setting, error in found.items())
    return CheckResult(
        True if all(right) else None if any(right) else False,
        f"error of the magnitude over its spread, {norm}: {said}",
        confirmed=True,
    )


@register_check
def trains_or_crashes(paper: str, crashes: dict[str, bool]) -> CheckResult:
    """Checks that each run of Table 13 (norm, learning rate) crashes or trains as published.

    Args:
        paper: the paper of the claim.
        crashes: whether each case of experiments/stress_test.py crashes.
    """
    found = partial_values("stress_test", crashes, STRESS_TEST)
    if missing := [case for case in crashes if case not in found]:
        cases = " ".join(f"--case {case!r}" for case in missing)
        return CheckResult(
            None,
            f"needs {len(missing)} runs of an hour of one core: `{registry.command('stress_test')} {cases}`",
            computed=False,
        )

    def said(case: str) -> str:
        value = found[case]
        if value["status"] != "ok":
            return f"{case} {value['status']} in epoch {value['epochs'] + 1}"
        return (
            f"{case} {'crashes' if value['crashed'] else 'trains'} (training loss {value['losses'][0]:.2f} to "
            f"{value['losses'][-1]:.2f})"
        )

    right = all(found[case]["crashed"] == printed for case, printed in crashes.items())
    return CheckResult(right, f"one seed: {', '.join(map(said, crashes))}", confirmed=True)
