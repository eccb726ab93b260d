"""The error of user-supplied models, and the lines that it names. Does not import torch."""

import inspect
import traceback

from gt_bench.utils.errors import UserError


class OwnModelError(UserError, ValueError):
    """A user-supplied model cannot be used; the message names file, line, the error, and what to write instead."""


def where(plain: type, method: str, error: BaseException | None = None) -> dict[str, str]:
    """Return file and place of an OwnModelError: the last line of the file that `error` passed, else the method's."""
    code = getattr(plain.__dict__.get(method), "__code__", None)
    file = code.co_filename if code else _file_of(plain)
    lines = (
        [frame.lineno for frame in traceback.extract_tb(error.__traceback__) if frame.filename == file] if error else []
    )
    line = lines[-1] if lines else code.co_firstlineno if code else line_of(plain)
    return {"file": file, "place": f"line {line}"}


def _file_of(plain: type) -> str:
    try:
        return inspect.getsourcefile(plain) or plain.__module__
    except TypeError:  # of a notebook
        return plain.__module__


def line_of(cls: type) -> int | str:
    """Returns the first line of a class in its file, "?" if the file cannot be read."""
    try:
        return inspect.getsourcelines(cls)[1]
    except (OSError, TypeError):
        return "?"
