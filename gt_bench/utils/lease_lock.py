"""A lock with a lease, for folders that several machines share: it survives a holder that dies, wherever that one was.

PATH.1, PATH.2, ... are claims, of which the highest counts; a claim comes into being by a link, which is atomic on network file systems too. Its holder
writes it anew every BEAT seconds. Whether a holder is gone is told by its process where it is of this machine; else by time: the claim is older than
LEASE by the clock of the file system, which dates both sides, and does not change while somebody watches for longer than two beats. So neither a
clock that is wrong nor one that jumps takes a lock from the living. A holder that was thought dead finds a higher claim and knows (`lost`).
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
    "nfs",
    "cifs",
    "smb",
    "lustre",
    "gpfs",
    "beegfs",
    "ceph",
    "glusterfs",
    "afs",
    "9p",
    "fuse.sshfs",
    "fuse.glusterfs",
)


def this_machine() -> str:
    """A name under which process ids mean the same: the host, since when it runs, and the namespace of process ids."""
    parts = [socket.gethostname()]
    for read in (
        lambda: Path("/proc/sys/kernel/random/boot_id").read_text(encoding="utf-8").strip(),
        lambda: os.readlink("/proc/self/ns/pid"),
    ):
        with contextlib.suppress(OSError):
            parts.append(read())
    return " ".join(parts)


def network_file_system(path: Path) -> str | None:
    """The type of the network file system that `path` is on; None if it is local or unknown."""
    with contextlib.suppress(OSError):
        mounts = [line.split() for line in MOUNTS.read_text(encoding="utf-8").splitlines()]
        real = path.resolve()
        inside = [(point, kind) for _, point, kind, *_ in mounts if real.is_relative_to(point.replace("\\040", " "))]
        kind = max(inside, key=lambda one: len(one[0]))[1] if inside else ""
        return kind if kind.startswith(NETWORK) else None
    return None


class Holder(TypedDict, total=False):
    """Who has a claim, as its file says: process `pid` of `machine`, when it began (ticks since the machine did), and how often it has written
    the claim."""

    machine: str
    pid: int
    ticks: int | None
    token: str
    beat: int


class Lease:
    """The lock at `path`. `machine`: see `this_machine`."""

    def __init__(self, path: Path, machine: str | None = None, beat: float = BEAT, lease: float = LEASE):
        self.path, self.machine, self.beat, self.lease = path, machine or this_machine(), beat, lease
        self.token, self.count, self.number = uuid.uuid4().hex, 0, 0
        self._stop = threading.Event()
        self._thread: threading.Thread | None = None

    def acquire(self) -> bool:
        """Takes the lock if nobody living has it. Where its holder seems dead, this watches for two beats and a half. Raises WriteError."""
        make_folder(self.path.parent)
        claims = self._claims()
        if claims and not self._is_dead(claims[-1]):
            return False
        self.number = claims[-1] + 1 if claims else 1
        if not self._create():
            return False
        if self._claims()[-1] != self.number:  # somebody was faster, with a claim that this one did not know of
            self._file(self.number).unlink(missing_ok=True)
            return False
        self._thread = threading.Thread(target=self._keep, daemon=True)
        self._thread.start()
        return True

    def release(self) -> None:
        """Gives the lock back, if another has not taken it meanwhile."""
        self._stop.set()
        if self._thread is not None:
            self._thread.join()
        for number in self._claims():
            if number <= self.number:  # the highest last, so that no dead one counts in between
                self._file(number).unlink(missing_ok=True)

    @property
    def lost(self) -> bool:
        """Whether another has taken the lock: this process stood still for longer than the lease."""
        claims = self._claims()
        return not claims or claims[-1] != self.number

    @contextlib.contextmanager
    def held(self) -> Iterator[bool]:
        """Whether the lock is had, for as long as the block takes."""
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
        said: Holder = {
            "machine": self.machine,
            "pid": os.getpid(),
            "ticks": _ticks(os.getpid()),
            "token": self.token,
            "beat": self.count,
        }
        return json.dumps(said).encode()

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
            with contextlib.suppress(
                WriteError, OSError
            ):  # a full disk: the lease may run out, and a run be computed twice, to the same bits
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
            return self._file(number).read_bytes()  # opened anew: what a network file system has cached is checked
        except FileNotFoundError:
            return None

    def _age(self, number: int) -> float:
        """Seconds since the claim was written, by the clock that dates files."""
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
    """Whether the holder's process is still there, and not another one with its number."""
    try:
        if psutil.Process(holder["pid"]).status() == psutil.STATUS_ZOMBIE:
            return False
        return holder.get("ticks") in (None, _ticks(holder["pid"]))  # None: written by older code, which may still run
    except (psutil.NoSuchProcess, KeyError, TypeError, ValueError):
        return False


def _ticks(pid: int) -> int | None:
    """When a process began, in ticks of the kernel since the machine did: that and its number name it, whatever is done to the clock, from
    which `psutil.Process.create_time` is counted. None where the system does not say."""
    try:
        return int(Path(f"/proc/{pid}/stat").read_text(encoding="utf-8").rpartition(")")[2].split()[19])
    except (OSError, ValueError, IndexError):
        return None
