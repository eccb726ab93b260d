"""Import of a user's file as a module, once per content of the file; errors name file and line."""

import contextlib
import hashlib
import importlib.util
import inspect
import sys
import traceback
from functools import cache
from importlib.machinery import SourceFileLoader
from pathlib import Path
from types import CodeType, FunctionType, ModuleType

from gt_bench.runtime.signals import Stopped
from gt_bench.runtime.torch_defaults import torch_defaults
from gt_bench.utils.errors import UserError
from gt_bench.utils.user_code import source_files

PREFIX = "_own_"  # of the names of such modules
_LOADED: set[str] = set()  # names of modules of users' folders that were imported here


class ImportFails(UserError, ValueError):
    """A user's file cannot be imported; the message names file and line."""


def imported(path: Path, shown: str) -> ModuleType:
    """Import a file, which may import other files of the user.

    The working directory and torch's defaults are as before afterwards.

    Args:
        path: of the file.
        shown: name of the file in messages.

    Raises:
        ImportFails: the import fails.
    """
    files = sorted(source_files(path).items())
    return _version(path, shown, tuple((name, file, file.read_bytes()) for name, file in files))


@cache
def _version(path: Path, shown: str, texts: tuple[tuple[str, Path, bytes], ...]) -> ModuleType:
    # an older content, or modules of the same names in another folder
    names = {name for text in texts for name in _module_names(text[0])}
    for name in _LOADED & names & sys.modules.keys():
        del sys.modules[name]
    before = set(sys.modules)
    own = f"{PREFIX}{hashlib.sha256(str(path).encode()).hexdigest()[:12]}_{path.stem}"
    loader = _SourceLoader(own, str(path))
    spec = importlib.util.spec_from_file_location(own, path, loader=loader)
    assert spec is not None  # it is None only without a loader
    module = importlib.util.module_from_spec(spec)
    sys.modules[own] = module
    sys.path.insert(0, str(path.parent))
    written, sys.dont_write_bytecode = sys.dont_write_bytecode, True  # for other files of the folder
    try:
        with torch_defaults(), contextlib.chdir("."):
            loader.exec_module(module)
    except (Exception, SystemExit) as error:  # a user's file may raise anything
        del sys.modules[own]
        if isinstance(error, Stopped):
            raise
        line = error.lineno if isinstance(error, SyntaxError) and error.filename == str(path) else line_in(path, error)
        remedy = "install that package or remove the import" if isinstance(error, ImportError) else "correct the line"
        if isinstance(error, SystemExit):  # probably a script that reads its own arguments
            remedy = 'move the code of the script below `if __name__ == "__main__":`'
        problem = f"expected a file that Python can import; it raises {type(error).__name__}: {error}"
        raise ImportFails(problem, file=shown, place=f"line {line}", remedy=remedy) from error
    finally:
        sys.path.remove(str(path.parent))
        sys.dont_write_bytecode = written
        _LOADED.update(names & sys.modules.keys() - before)
    return module


def _module_names(file: str) -> list[str]:
    """Return the name of the module of a file below a folder of imports, and of the packages that it is in."""
    parts = file.removesuffix(".py").removesuffix("/__init__").split("/")
    return [".".join(parts[:count]) for count in range(1, len(parts) + 1)]


class _SourceLoader(SourceFileLoader):
    """Ignore .pyc files, which distinguish two contents only by size and whole seconds."""

    def get_code(self, fullname: str) -> CodeType:
        return self.source_to_code(self.get_data(self.path), self.path)


def function_of(module: ModuleType, name: str) -> tuple[FunctionType | None, list[str]]:
    """Look up a function of a user's file.

    Args:
        module: the file, as `imported` returns it.
        name: name of the function.

    Returns:
        The function, or None if the file has no function of this name; and the names of those that it defines.
    """
    function = getattr(module, name, None)
    own = [
        key for key, value in vars(module).items() if inspect.isfunction(value) and value.__module__ == module.__name__
    ]
    return (function if inspect.isfunction(function) else None), own


def line_in(path: Path | str, error: BaseException) -> int | str:
    """Return the last line of the file in the traceback of `error`; "?" if the file is not in it."""
    lines = [frame.lineno or "?" for frame in traceback.extract_tb(error.__traceback__) if frame.filename == str(path)]
    return lines[-1] if lines else "?"
