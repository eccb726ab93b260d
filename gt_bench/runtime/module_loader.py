"""Import of a user's file as a module, once per content of the file; errors name file and line."""

import hashlib
import importlib.util
import inspect
import sys
import traceback
from functools import cache
from importlib.machinery import SourceFileLoader
from pathlib import Path
from types import CodeType, FunctionType, ModuleType

from gt_bench.runtime.global_state import unchanged_process
from gt_bench.runtime.signals import Stopped
from gt_bench.utils.code_digest import modules_of
from gt_bench.utils.errors import UserError

PREFIX = "_own_"  # of the names of such modules
_NEIGHBOURS: set[str] = set()  # all files that users' files imported


class ImportFails(UserError, ValueError):
    """A user's file cannot be imported; the message names file and line."""


def imported(path: Path, shown: str) -> ModuleType:
    """Import a file, which may import other files of the user.

    Args:
        path: of the file.
        shown: name of the file in messages.

    Raises:
        ImportFails: the import fails, or it changes the working directory.
    """
    try:
        files = modules_of(path, path.parent)
    except SyntaxError:  # the import reports where
        files = {path: path.name}
    return _version(path, shown, tuple((file, name, file.read_bytes()) for file, name in sorted(files.items())))


@cache
def _version(path: Path, shown: str, texts: tuple[tuple[Path, str, bytes], ...]) -> ModuleType:
    neighbours = {str(file) for file, _, _ in texts}
    names = {name.removesuffix(".py").replace("/", ".").removesuffix(".__init__") for _, name, _ in texts}
    for key, module in list(sys.modules.items()):
        file = getattr(module, "__file__", None)
        # an older content, or a module of the same name in another folder
        if file in neighbours or (key in names and file in _NEIGHBOURS):
            del sys.modules[key]
            package, _, name = key.rpartition(".")
            if vars(sys.modules.get(package, sys)).get(name) is module:  # `from package import name` reads it
                delattr(sys.modules[package], name)
    _NEIGHBOURS.update(neighbours)
    name = f"{PREFIX}{hashlib.sha256(str(path).encode()).hexdigest()[:12]}_{path.stem}"
    loader = _SourceLoader(name, str(path))
    spec = importlib.util.spec_from_file_location(name, path, loader=loader)
    assert spec is not None  # it is None only without a loader
    module = importlib.util.module_from_spec(spec)
    sys.modules[name] = module
    sys.path.insert(0, str(path.parent))
    written, sys.dont_write_bytecode = sys.dont_write_bytecode, True  # for other files of the folder
    try:
        with unchanged_process() as changed:
            loader.exec_module(module)
        if "the working directory" in changed:
            raise ImportError("it changes the working directory, and with it every relative path")
    except (Exception, SystemExit) as error:  # a user's file may raise anything
        del sys.modules[name]
        if isinstance(error, Stopped):
            raise
        line = error.lineno if isinstance(error, SyntaxError) and error.filename == str(path) else line_in(path, error)
        remedy = "install that package or remove the import" if isinstance(error, ImportError) else "correct the line"
        if isinstance(error, SystemExit):  # probably a script that reads its own arguments
            remedy = 'move the code of the script below `if __name__ == "__main__":`'
        raise ImportFails(
            f"{shown}, line {line}: expected a file that Python can import; it raises {type(error).__name__}: {error}; "
            f"{remedy}"
        ) from error
    finally:
        sys.path.remove(str(path.parent))
        sys.dont_write_bytecode = written
    return module


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
    found = getattr(module, name, None)
    own = [
        key for key, value in vars(module).items() if inspect.isfunction(value) and value.__module__ == module.__name__
    ]
    return (found if inspect.isfunction(found) else None), own


def line_in(path: Path | str, error: BaseException) -> int | str:
    """Return the last line of the file in the traceback of `error`; "?" if the file is not in it."""
    lines = [frame.lineno or "?" for frame in traceback.extract_tb(error.__traceback__) if frame.filename == str(path)]
    return lines[-1] if lines else "?"
