"""A file of one's own as a module, imported once for each text that it has; whatever it raises is named with file and line."""

import hashlib
import importlib.util
import sys
import traceback
from functools import cache
from importlib.machinery import SourceFileLoader
from pathlib import Path
from types import CodeType, ModuleType

from gt_bench.runtime.global_state import unchanged_process
from gt_bench.runtime.signals import Stopped
from gt_bench.utils.errors import UserError
from gt_bench.utils.source_digest import files_of


class ImportFails(UserError, ValueError):
    """A file of one's own that cannot be imported; the message names file and line."""


def imported(path: Path, shown: str) -> ModuleType:
    """The module of the file `path`, which messages call `shown`. What lies beside it can be imported by it. Raises ImportFails."""
    try:
        files = files_of(path, path.parent)
    except SyntaxError:  # the import says where
        files = [path]
    return _version(path, shown, tuple((file, file.read_bytes()) for file in files))


PREFIX = "_own_"  # of the names of such modules
# every file that was imported beside one of one's own
_BESIDE: set[str] = set()


@cache
def _version(path: Path, shown: str, texts: tuple[tuple[Path, bytes], ...]) -> ModuleType:
    beside, root = {str(file) for file, _ in texts}, path.resolve().parent
    names = {
        ".".join(file.resolve().relative_to(root).with_suffix("").parts).removesuffix(".__init__") for file, _ in texts
    }
    for key, module in list(sys.modules.items()):
        file = getattr(module, "__file__", None)
        if file in beside or (key in names and file in _BESIDE):  # of an older text, or of this name in another folder
            del sys.modules[key]
    _BESIDE.update(beside)
    name = f"{PREFIX}{hashlib.sha256(str(path).encode()).hexdigest()[:12]}_{path.stem}"
    loader = _FromText(name, str(path))
    spec = importlib.util.spec_from_file_location(name, path, loader=loader)
    assert spec is not None  # as it is where no loader is known
    module = importlib.util.module_from_spec(spec)
    sys.modules[name] = module
    sys.path.insert(0, str(path.parent))
    written, sys.dont_write_bytecode = sys.dont_write_bytecode, True  # of the files beside it
    try:
        with unchanged_process() as changed:
            loader.exec_module(module)
        if "the working directory" in changed:
            raise ImportError("it changes the working directory, and with it every relative path")
    except (Exception, SystemExit) as error:  # whatever a user's file may raise
        del sys.modules[name]
        if isinstance(error, Stopped):
            raise
        line = error.lineno if isinstance(error, SyntaxError) and error.filename == str(path) else line_in(path, error)
        remedy = (
            "install that package, or take the import out" if isinstance(error, ImportError) else "correct the line"
        )
        if isinstance(error, SystemExit):  # a script, which reads its own arguments perhaps
            remedy = 'put what is to run as a script alone below `if __name__ == "__main__":`'
        raise ImportFails(
            f"{shown}, line {line}: expected a file that Python can import; it raises {type(error).__name__}: {error}; {remedy}"
        ) from error
    finally:
        sys.path.remove(str(path.parent))
        sys.dont_write_bytecode = written
    return module


class _FromText(SourceFileLoader):
    """Never from a .pyc, which tells two texts apart by size and whole seconds alone."""

    def get_code(self, fullname: str) -> CodeType:
        return self.source_to_code(self.get_data(self.path), self.path)


def line_in(path: Path | str, error: BaseException) -> int | str:
    """The last line of the file that `error` passed; "?" where it passed none."""
    lines = [frame.lineno or "?" for frame in traceback.extract_tb(error.__traceback__) if frame.filename == str(path)]
    return lines[-1] if lines else "?"
