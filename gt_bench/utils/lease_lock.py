"""A lock with a lease, for folders that several machines share: it is released if its holder dies on any machine.

The files PATH.1, PATH.2, ... are claims; the highest one holds the lock. A claim is created by a hard link, which is
atomic also on network file systems, and its holder writes it again every BEAT seconds. A holder on this machine is dead
if its process is gone. A holder on another machine counts as dead if its claim is older than LEASE by the clock of the
file system and does not change while another process watches it for more than two beats. A wrong clock or a jump of the
clock therefore never takes the lock from a living holder. A holder that wrongly counted as dead sees a higher claim
(`lost`).

Libraries do not cover this: `filelock.SoftFileLease` never takes over the claim of a dead machine on NFS, where two
names cannot be exchanged atomically, and `flufl.lock` compares the expiry of a lock with the local clock.
"""

import contextlib
import json
import os
import socket
import tempfile
import threading
import time
import uuid
from collections.abc import Iterator
from pathlib import Path
from typing import TypedDict, cast

import psutil

from gt_bench.utils.io import WriteError, make_folder, write_bytes

BEAT, LEASE = 20.0, 100.0  # seconds
MOUNTS = Path("/proc/self/mounts")
NETWORK = (
    "nfs", "cifs", "smb", "lustre", "gpfs", "beegfs", "ceph", "glusterfs", "afs", "9p", "fuse.sshfs", "fuse.glusterfs",
)  # fmt: skip


def this_machine() -> str:
    """Return a name of the machine within which process ids are unique: host name, boot id and PID namespace."""
    parts = [socket.gethostname()]
    for read in (
        lambda: Path("/proc/sys/kernel/random/boot_id").read_text(encoding="utf-8").strip(),
        lambda: os.readlink("/proc/self/ns/pid"),
    ):
        with contextlib.suppress(OSError):
            parts.append(read())
    return " ".join(parts)


def network_file_system(path: Path) -> str | None:
    """Return the type of the network file system of `path`; None if it is local or unknown."""
    with contextlib.suppress(OSError):
        mounts = [line.split() for line in MOUNTS.read_text(encoding="utf-8").splitlines()]
        real = path.resolve()
        inside = [(point, kind) for _, point, kind, *_ in mounts if real.is_relative_to(point.replace("\\040", " "))]
        kind = max(inside, key=lambda one: len(one[0]))[1] if inside else ""
        return kind if kind.startswith(NETWORK) else None
    return None


class Holder(TypedDict, total=False):
    """Content of a claim: process `pid` of `machine`, its start in ticks since boot, how often it wrote the claim."""

    machine: str
    pid: int
    ticks: int | None
    token: str
    beat: int


class Lease:
    """A lock with a lease.

    Args:
        path: of the lock; claims are files next to it.
        machine: name of this machine; see `this_machine`.
        beat: seconds between two writes of a claim.
        lease: seconds after which a claim may count as abandoned.
    """

    def __init__(self, path: Path, machine: str | None = None, beat: float = BEAT, lease: float = LEASE):
        self.path, self.machine, self.beat, self.lease = path, machine or this_machine(), beat, lease
        self.token, self.count, self.number = uuid.uuid4().hex, 0, 0
        self._stop = threading.Event()
        self._thread: threading.Thread | None = None

    def acquire(self) -> bool:
        """Take the lock unless a living holder has it; if the holder seems dead, watch it for 2.5 beats first.

        Raises:
            WriteError: a file cannot be written.
        """
        make_folder(self.path.parent)
        claims = self._claims()
        if claims and not self._is_dead(claims[-1]):
            return False
        self.number = claims[-1] + 1 if claims else 1
        if not self._create():
            return False
        if self._claims()[-1] != self.number:  # another process was faster, with a claim that was not listed before
            self._file(self.number).unlink(missing_ok=True)
            return False
        self._thread = threading.Thread(target=self._keep, daemon=True)
        self._thread.start()
        return True

    def release(self) -> None:
        """Release the lock, unless another process has taken it."""
        self._stop.set()
        if self._thread is not None:
            self._thread.join()
        for number in self._claims():
            if number <= self.number:  # the highest last, so that no older claim holds the lock in between
                self._file(number).unlink(missing_ok=True)

    @property
    def lost(self) -> bool:
        """Whether another process has taken the lock because this one was suspended for longer than the lease."""
        claims = self._claims()
        return not claims or claims[-1] != self.number

    @contextlib.contextmanager
    def held(self) -> Iterator[bool]:
        """Try to take the lock, yield whether it was taken, and release it after the block."""
        mine = self.acquire()
        try:
            yield mine
        finally:
            if mine:
                self.release()

    def _claims(self) -> list[int]:
        prefix = f"{self.path.name}."
        names = [entry.removeprefix(prefix) for entry in os.listdir(self.path.parent) if entry.startswith(prefix)]
        return sorted(int(name) for name in names if name.isdecimal())

    def _file(self, number: int) -> Path:
        return self.path.with_name(f"{self.path.name}.{number}")

    def _content(self) -> bytes:
        pid = os.getpid()
        holder = Holder(machine=self.machine, pid=pid, ticks=_ticks(pid), token=self.token, beat=self.count)
        return json.dumps(holder).encode()

    def _create(self) -> bool:
        temporary = write_bytes(self.path.with_name(f".{self.path.name}.{self.token}"), self._content())
        try:
            os.link(temporary, self._file(self.number))
            return True
        except FileExistsError:
            return False
        finally:
            temporary.unlink()

    def _keep(self) -> None:
        while not self._stop.wait(self.beat):
            self.count += 1
            if self.lost:
                return
            # If the disk is full, the lease may expire, and a run may be computed twice, with the same result.
            with contextlib.suppress(WriteError, OSError):
                write_bytes(self._file(self.number), self._content())

    def _is_dead(self, number: int) -> bool:
        content = self._read(number)
        if content is None:  # released just now
            return False
        holder = _parsed(content)
        if holder.get("machine") == self.machine:
            return not _runs(holder)
        if self._age(number) < self.lease:
            return False
        until = time.monotonic() + 2.5 * self.beat
        while time.monotonic() < until:
            time.sleep(min(1.0, self.beat / 4))
            if self._read(number) != content:
                return False
        return True

    def _read(self, number: int) -> bytes | None:
        try:
            return self._file(number).read_bytes()  # opening the file makes a network file system check its cache
        except FileNotFoundError:
            return None

    def _age(self, number: int) -> float:
        """Return the seconds since the claim was written, by the clock of the file system."""
        with tempfile.TemporaryFile(dir=self.path.parent) as now, contextlib.suppress(FileNotFoundError):
            now.write(b"now")
            now.flush()
            return os.fstat(now.fileno()).st_mtime - self._file(number).stat().st_mtime
        return 0.0


def _parsed(content: bytes) -> Holder:
    with contextlib.suppress(ValueError):
        found = json.loads(content)
        return cast(Holder, found) if isinstance(found, dict) else {}
    return {}


def _runs(holder: Holder) -> bool:
    """Return whether the process of the holder still runs, and is not another process with the same id."""
    try:
        if psutil.Process(holder["pid"]).status() == psutil.STATUS_ZOMBIE:
            return False
        return holder.get("ticks") in (None, _ticks(holder["pid"]))  # None: written by an older version of this code
    except (psutil.NoSuchProcess, KeyError, TypeError, ValueError):
        return False


def _ticks(pid: int) -> int | None:
    """Return the start of a process in kernel ticks since boot; None if the system does not report it.

    Start and id identify a process also if the clock changes; `psutil.Process.create_time` depends on the clock.
    """
    try:
        return int(Path(f"/proc/{pid}/stat").read_text(encoding="utf-8").rpartition(")")[2].split()[19])
    except (OSError, ValueError, IndexError):
        return None
