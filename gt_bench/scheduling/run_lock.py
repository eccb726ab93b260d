"""Who computes a run: one process at a time, on whatever machine; the others take the next."""

import contextlib
from collections.abc import Iterator
from pathlib import Path

from filelock import FileLock, Timeout

from gt_bench.store.run_store import Store, StoreError
from gt_bench.utils.io import make_folder
from gt_bench.utils.lease_lock import Lease


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


def check_locks(root: Path) -> None:
    """Raises StoreError where files of the store cannot be locked."""
    path = make_folder(root) / "locks"
    try:
        with FileLock(path, timeout=60):
            pass
    except (OSError, NotImplementedError) as error:
        raise StoreError(
            f"{root}: files cannot be locked there ({error}), so that two processes would compute the same runs; put the store on a file system with "
            "locks (NFS: version 4, or version 3 with lockd)"
        ) from None
