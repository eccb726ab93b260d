"""Who computes a run: one process at a time; the others take the next."""

import contextlib
from collections.abc import Iterator

from filelock import FileLock, Timeout

from stages.files import make_folder
from stages.store import Store


@contextlib.contextmanager
def claimed(store: Store, digest: str) -> Iterator[bool]:
    """Whether this process may compute the run, for as long as the block takes; False where another has it, by a claim or by the store's own
    lock. Raises WriteError."""
    folder = make_folder(store.folder(digest))
    with contextlib.ExitStack() as stack:
        try:
            stack.enter_context(FileLock(folder / "claim", timeout=0))
            with FileLock(folder / "lock", timeout=0):  # of one that trains without claims
                pass
        except Timeout:
            yield False
            return
        yield True
