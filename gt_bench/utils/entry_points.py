"""Entry points with which installed packages provide models and datasets."""

import traceback
from importlib.metadata import EntryPoint

from gt_bench.utils.errors import UserError


def described(entry: EntryPoint) -> str:
    """Return the description of an entry point for messages."""
    return f"the entry point {entry.name} = {entry.value!r} of {package_of(entry)} (group {entry.group})"


def package_of(entry: EntryPoint) -> str:
    """Return the name of the package that declares the entry point, for messages."""
    return entry.dist.name if entry.dist else "an installed package"


def loaded(entry: EntryPoint, error_type: type[UserError], expected: str) -> object:
    """Load the object of an entry point.

    Args:
        entry: the entry point.
        error_type: class of the error to raise.
        expected: what the object must be, for the message.

    Raises:
        UserError: of type `error_type`, with the line at which the package fails.
    """
    try:
        return entry.load()
    except Exception as error:  # a package may raise anything
        frame = traceback.extract_tb(error.__traceback__)[-1]
        raise error_type(
            f"does not load: {frame.filename}, line {frame.lineno}: {type(error).__name__}: {error}",
            file=described(entry),
            remedy=f"expected {expected}; correct its pyproject.toml or reinstall it",
        ) from error
