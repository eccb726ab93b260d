"""Locks that let one process compute a run, on any machine; other processes continue with the next run."""

import contextlib
from collections.abc import Iterator
from pathlib import Path

from filelock import FileLock, Timeout

from gt_bench.store.run_store import Store, StoreError
from gt_bench.utils.io import make_folder
from gt_bench.utils.lease_lock import Lease


@contextlib.contextmanager
def claimed(store: Store, digest: str) -> Iterator[bool]:
    """Claim a run inside the block; yield False if another process has claimed it or holds the lock of the store.

    Raises:
        WriteError: the claim cannot be written.
    """
    folder = store.folder(digest)
    with Lease(folder / "claim").held() as mine:
        if mine:
            try:
                with FileLock(folder / "lock", timeout=0):  # held by a process that trains without claims
                    pass
            except Timeout:
                mine = False
        yield mine


def check_locks(root: Path) -> None:
    """Check that files of the store can be locked.

    Raises:
        StoreError: the file system has no locks.
    """
    path = make_folder(root) / "locks"
    try:
        with FileLock(path, timeout=60):
            pass
    except (OSError, NotImplementedError) as error:
        raise StoreError(
            f"{root}: files cannot be locked there ({error}), and two processes would compute the same runs; move the "
            "store to a file system with locks (NFS: version 4, or version 3 with lockd)"
        ) from None
