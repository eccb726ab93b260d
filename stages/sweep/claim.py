"""Who computes a run: one process at a time, on whatever machine; the others take the next."""

import contextlib
from collections.abc import Iterator

from filelock import FileLock, Timeout

from stages.lease import Lease
from stages.store import Store


@contextlib.contextmanager
def claimed(store: Store, digest: str) -> Iterator[bool]:
    """Whether this process may compute the run, for as long as the block takes; False where another has it, by a claim or by the store's own
    lock. Raises WriteError."""
    folder = store.folder(digest)
    with Lease(folder / "claim").held() as mine:
        if mine:
            try:
                with FileLock(folder / "lock", timeout=0):  # of one that trains without claims
                    pass
            except Timeout:
                mine = False
        yield mine
