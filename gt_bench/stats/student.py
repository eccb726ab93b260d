"""Student's t distribution, by scipy.special."""

import math


def quantile(q: float, df: float) -> float:
    """Returns a quantile of Student's t, or of the normal distribution for infinite degrees of freedom."""
    from scipy import special

    return float(special.ndtri(q) if math.isinf(df) else special.stdtrit(df, q))


def upper_tail(t: float, df: float) -> float:
    """Returns P(T > t) for Student's t, or for the normal distribution for infinite degrees of freedom."""
    from scipy import special

    return float(special.ndtr(-t) if math.isinf(df) else special.stdtr(df, -t))
