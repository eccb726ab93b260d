"""Errors that a user can fix. Only the message is shown (runtime/exit_status.py), so it names file and remedy."""

import difflib
from collections.abc import Iterable


class UserError(Exception):
    """An error that a user can fix. Packages define subclasses where callers must distinguish them."""


class DatasetError(UserError, ValueError):
    """Invalid data; the message names the problem and its place."""


class MissingPackage(UserError, ImportError):
    """A command needs a package that is not installed; the message contains the command that installs it."""


def nearest(name: str, known: Iterable[str]) -> str:
    """Returns ` (did you mean 'x'?)` with the known name that is most similar, or an empty text, for error messages."""
    near = difflib.get_close_matches(name, list(known), 1, cutoff=0.5)
    return f" (did you mean {near[0]!r}?)" if near else ""


def missing(error: ImportError, of: str = "this command") -> MissingPackage:
    """Return the error to raise for a failed import.

    Args:
        error: of the import.
        of: what needs the package, for the message.
    """
    package = (error.name or str(error)).partition(".")[0]
    return MissingPackage(
        f"{of} needs {package}, which is not installed; run: python -m pip install {PACKAGES.get(package, package)}"
    )


# Packages whose install name differs from the import name; psycopg is unusable without its C library.
PACKAGES = {
    "psycopg": "'psycopg[binary]'",
    "sklearn": "scikit-learn",
    "yaml": "pyyaml",
    "ruamel": "ruamel.yaml",
    "sqlalchemy": "mlflow",
}
