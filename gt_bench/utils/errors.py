"""Errors that a user can fix. Only the message is shown (runtime/exit_status.py), so it names file and remedy."""

import difflib
from collections.abc import Iterable
from pathlib import Path
from typing import Self


class UserError(Exception):
    """An error that a user can fix. Packages define subclasses where callers must distinguish them.

    The message is `file: place: problem; remedy`, without the parts that are empty. If there are several lines, the
    remedy begins a new one.

    Attributes:
        problem: what is wrong, which names the value if there is one.
        file: the file, or the name of the data, in which it is wrong, or "".
        place: the key, option, argument, or line and column in the file, or "".
        value: what was given. None if there is no single value.
        remedy: what to do, or "".
    """

    def __init__(
        self, problem: str = "", *, file: str | Path = "", place: str = "", value: object = None, remedy: str = ""
    ):
        super().__init__()
        self.problem, self.file, self.place, self.value, self.remedy = problem, "", place, value, remedy
        self.within(file)

    def within(self, file: str | Path = "", place: str = "", separator: str = ".") -> Self:
        """Add the file, if the error names none, and the place that contains its place. Returns the error."""
        self.file = self.file or str(file)
        self.place = separator.join(part for part in (place, self.place) if part)
        where = ": ".join(part for part in (self.file, self.place, self.problem) if part)
        lines = "\n" if "\n" in where + self.remedy else "; "
        self.args = (lines.join(part for part in (where, self.remedy) if part),)
        return self


class DatasetError(UserError, ValueError):
    """Invalid data."""


class MissingPackage(UserError, ImportError):
    """A command needs a package that is not installed; the message contains the command that installs it."""


def closest(name: str, known: Iterable[str]) -> str:
    """Returns the known name that is most similar, or an empty text if none is."""
    known = list(known)
    swapped = [other for other in known if sorted(other) == sorted(name)]  # gnc: difflib prefers gin to gcn
    return next(iter(swapped or difflib.get_close_matches(name, known, 1, cutoff=0.5)), "")


def suggestion(name: str) -> str:
    """Returns ` (did you mean 'name'?)`, or an empty text for an empty name, for error messages."""
    return f" (did you mean {name!r}?)" if name else ""


def nearest(name: str, known: Iterable[str]) -> str:
    """Returns the `suggestion` of the known name that is most similar."""
    return suggestion(closest(name, known))


def missing(error: ImportError, of: str = "this command") -> MissingPackage:
    """Return the error to raise for a failed import.

    Args:
        error: of the import.
        of: what needs the package, for the message.
    """
    package = (error.name or str(error)).partition(".")[0]
    remedy = f"run: python -m pip install {PACKAGES.get(package, package)}"
    return MissingPackage(f"{of} needs {package}, which is not installed", value=package, remedy=remedy)


# Packages whose install name differs from the import name; psycopg is unusable without its C library.
PACKAGES = {
    "psycopg": "'psycopg[binary]'",
    "sklearn": "scikit-learn",
    "yaml": "pyyaml",
    "ruamel": "ruamel.yaml",
    "sqlalchemy": "mlflow",
}
