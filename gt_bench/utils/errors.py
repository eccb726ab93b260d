"""Errors that a user can mend: the message is all that is shown (gt_bench/runtime/exit_status.py), so it names the file and the remedy."""


class UserError(Exception):
    """What a user can mend. A room has a subclass of its own, where somebody tells its errors from others."""


class DatasetError(UserError, ValueError):
    """Data that are not what they should be; the message says what and where."""


class MissingPackage(UserError, ImportError):
    """A package that a command needs and that is not installed; the message names the command that installs it."""


def missing(error: ImportError, of: str = "this command") -> MissingPackage:
    """What a user reads for an import that failed."""
    package = (error.name or str(error)).partition(".")[0]
    return MissingPackage(
        f"{of} needs {package}, which is not installed; run: python -m pip install {PACKAGES.get(package, package)}"
    )


# what is installed under another name than it is imported by; psycopg without its C library is of no use
PACKAGES = {
    "psycopg": "'psycopg[binary]'",
    "sklearn": "scikit-learn",
    "yaml": "pyyaml",
    "ruamel": "ruamel.yaml",
    "sqlalchemy": "mlflow",
}
