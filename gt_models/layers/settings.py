"""Checks of the sizes and rates that a model is built with."""


def at_least(least: int, **sizes: int | None) -> None:
    """Check that sizes are not too small; one that is None is not checked.

    Raises:
        ValueError: a size is below `least`.
    """
    for name, size in sizes.items():
        if size is not None and size < least:
            raise ValueError(f"{name} is {size}: give at least {least}")


def check_rates(**rates: float) -> None:
    """Check rates of dropout.

    Raises:
        ValueError: a rate is outside [0, 1).
    """
    for name, rate in rates.items():
        if not 0.0 <= rate < 1.0:
            raise ValueError(f"{name} {rate} is outside [0, 1)")
