"""Entry points by which installed packages give models and datasets."""

import traceback
from importlib.metadata import EntryPoint

from gt_bench.utils.errors import UserError


def described(entry: EntryPoint) -> str:
    """What messages call it."""
    return f"the entry point {entry.name} = {entry.value!r} of {package_of(entry)} (group {entry.group})"


def package_of(entry: EntryPoint) -> str:
    """Which installed package declares it, for messages."""
    return entry.dist.name if entry.dist else "an installed package"


def loaded(entry: EntryPoint, error_type: type[UserError], expected: str) -> object:
    """What it names. Raises `error_type` with the line at which the package fails and what is `expected` of it."""
    try:
        return entry.load()
    except Exception as error:  # whatever a package may raise
        frame = traceback.extract_tb(error.__traceback__)[-1]
        raise error_type(
            f"{described(entry)} does not load: {frame.filename}, line {frame.lineno}: {type(error).__name__}: {error}; expected {expected}; "
            "correct its pyproject.toml or reinstall it"
        ) from error
