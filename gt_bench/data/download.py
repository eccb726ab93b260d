"""Where raw files come from: mirrors in order (a folder laid out like the raw folder, or a URL's beginning), then the official addresses.

requests does the transfers: pooch (1.9) takes one address per file, starts a broken download over, and deletes what failed its checksum;
this needs the contrary of all three. Every file is held against its pinned sha256 before it is put in place.
"""

import contextlib
import errno
import hashlib
import os
import shutil
import sys
import threading
import time
from collections.abc import Callable, Sequence
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, NoReturn
from urllib.parse import quote, urljoin, urlsplit

from tqdm import tqdm

from gt_bench.data.spec import RemoteFile
from gt_bench.utils.errors import DatasetError
from gt_bench.utils.io import WriteError, held, make_folder
from gt_bench.utils.redact import printable, without_credentials

if TYPE_CHECKING:
    import requests

TIMEOUT = (5.0, 20.0)  # seconds to connect, and between two blocks of data
PROBE_TIMEOUT = 2.0
ANSWER_SECONDS = 60.0  # until a host has answered, redirects included
SLOW_SECONDS, SLOW_BYTES = 60.0, 64 << 10  # a host that sends fewer bytes in such a time is given up
_CHUNK = 1 << 18


class SourceError(DatasetError):
    """A raw file could not be had: `reason`, `tried` (every source with its error), `remedy` (the command that helps)."""

    def __init__(self, reason: str, tried: list[tuple[str, str]], remedy: str):
        listing = "".join(f"\n  {source}: {error}" for source, error in tried)
        super().__init__(f"{reason}.{' Tried:' if tried else ''}{listing}\n{remedy}")
        self.reason, self.tried, self.remedy = reason, tried, remedy


class _Failed(Exception):
    """One source did not deliver."""


class _TooLarge(_Failed):
    def __init__(self, at_most: int):
        super().__init__(f"more than the {at_most:,} bytes that are expected")


def mirrors_in_order(mirrors: Sequence[str] = ()) -> list[str]:
    """`GT_DATA_MIRROR` (several separated by commas) first, then the ones given; each once."""
    own = [m.strip() for m in os.environ.get("GT_DATA_MIRROR", "").split(",") if m.strip()]
    return list(dict.fromkeys([*own, *map(str, mirrors)]))


def fetch(
    file: RemoteFile, raw: Path, mirrors: Sequence[str] = (), say: Callable[[str], None] = lambda line: None
) -> Path:
    """Puts `file` at `raw`/path and returns that; a good file that is already there is kept. Safe for several processes.

    Raises SourceError where no source delivers. A file with a wrong checksum is kept aside as NAME.rejected-XXXXXXXX.
    """
    target = raw / file.path
    make_folder(target.parent)
    # beside raw/, and never deleted: a lock file that goes away while another process waits for it guards nothing
    lock = raw.parent / ".locks" / hashlib.sha256(file.path.encode()).hexdigest()[:16]
    make_folder(lock.parent)
    with held(lock):
        return _fetch(file, target, mirrors_in_order(mirrors), say)


def _fetch(file: RemoteFile, target: Path, mirrors: list[str], say: Callable[[str], None]) -> Path:
    tried = []
    if target.exists():
        wrong = _wrong(file, target)
        if wrong is None:
            return target
        tried.append((str(target), f"{wrong}; set aside as {_reject(target, target).name}"))
    for source in [*(_below(mirror, file.path) for mirror in mirrors), *file.urls]:
        part = target.with_name(target.name + ".part")
        try:
            if is_url(source):
                _download(source, part, file.bytes, file.bytes or file.at_most)
            else:
                _copy(Path(source), part, file.bytes or file.at_most)
            wrong = _wrong(file, part)
            if wrong is not None:
                raise _Failed(f"{wrong}; set aside as {_reject(part, target).name}")
            os.replace(part, target)
            say(f"{file.path}: {target.stat().st_size:,} bytes from {without_credentials(source)}")
            return target
        except _Failed as error:
            tried.append((without_credentials(source), without_credentials(str(error))))
    digest = f" (its sha256 must be {file.sha256})" if file.sha256 else ""
    made = f"\nIt is no original but derived: {file.derived}" if file.derived else ""
    raise SourceError(
        f"{file.path} cannot be had",
        tried,
        f"Place it by hand{digest}:\n  cp FILE {target}\nor name a folder or URL that has it: GT_DATA_MIRROR=...{made}",
    )


def reachable(file: RemoteFile, raw: Path, mirrors: Sequence[str] = ()) -> tuple[bool, str]:
    """(is it likely that `fetch` succeeds?, where from or why not). Cheap: looks at files, and asks each host once per process."""
    if (raw / file.path).exists():
        return True, str(raw / file.path)
    for source in [*(_below(mirror, file.path) for mirror in mirrors_in_order(mirrors)), *file.urls]:
        if not is_url(source):
            if Path(source).is_file():
                return True, source
        elif _host_answers(urlsplit(source).scheme, urlsplit(source).netloc):
            return True, without_credentials(source)
    return False, f"{file.path}: no mirror has it and no host answers"


def sha256_of(path: Path) -> str:
    """sha256 of a file, in hexadecimal."""
    return _digest(path, "sha256")


def _digest(path: Path, algorithm: str) -> str:
    with open(path, "rb") as file:
        return hashlib.file_digest(file, algorithm).hexdigest()


def _wrong(file: RemoteFile, path: Path) -> str | None:
    size = path.stat().st_size
    if file.bytes is not None and size != file.bytes:
        return f"{size:,} bytes where {file.bytes:,} are expected{_where_pinned(file)}"
    found = sha256_of(path)
    if file.sha256 is not None and found != file.sha256:
        return f"its sha256 is {found}, not {file.sha256}{_where_pinned(file)}"
    if file.sha256 is None and file.md5 is not None and _digest(path, "md5") != file.md5:
        return f"its md5 is not {file.md5}"
    return None


def _where_pinned(file: RemoteFile) -> str:
    if file.pinned is None:
        return ""
    return (
        f" as data.lock.json has it for {file.path} (pinned on first use, {file.pinned}); if this is a new version that you trust, delete "
        "that entry of data.lock.json and run the same command again"
    )


def _reject(path: Path, target: Path) -> Path:
    aside = target.with_name(f"{target.name}.rejected-{sha256_of(path)[:8]}")
    os.replace(path, aside)
    return aside


def _copy(source: Path, part: Path, at_most: int) -> None:
    if not source.is_file():
        raise _Failed("no such file")
    if source.stat().st_size > 2 * at_most:  # a little too large is a wrong checksum, and kept aside to be looked at
        raise _Failed(f"{source.stat().st_size:,} bytes, more than the {at_most:,} that are expected")
    try:
        shutil.copyfile(source, part)
    except OSError as error:
        _raise_if_here(error, part)
        raise _Failed(f"cannot be copied ({error.strerror})") from error


def _download(url: str, part: Path, size: int | None, at_most: int) -> None:
    """Continues `part` where an earlier attempt stopped; what had been fetched stays for the next attempt when this one breaks off, unless it
    is more than `at_most` bytes."""
    import requests
    import urllib3

    parts = urlsplit(url)
    if not _host_answers(parts.scheme, parts.netloc):
        raise _Failed(f"{parts.netloc.rpartition('@')[2]} does not answer within {PROBE_TIMEOUT:g} s")
    have = part.stat().st_size if part.exists() else 0
    if size is not None and have >= size:
        os.unlink(part)
        have = 0
    try:
        headers = {"Range": f"bytes={have}-"} if have else {}
        with _session() as session, _answer(session, url, headers | {"Accept-Encoding": "identity"}) as answer:
            if answer.status_code == 416:
                part.unlink(missing_ok=True)
                raise _Failed("the host does not continue this file; run the same command again to start over")
            answer.raise_for_status()
            if answer.status_code not in ((200, 206) if have else (200,)):
                raise _Failed(f"answers {answer.status_code}, and a file comes with 200")
            if not answer.headers.get("Content-Range", f"bytes {have}-").startswith(f"bytes {have}-"):
                raise _Failed(f"continues at another byte than {have:,}" + _kept(part))
            if answer.status_code != 206:
                have = 0
            length = int(answer.headers.get("Content-Length", -1))
            total = size or (have + length if length >= 0 else None)
            if length >= 0 and have + length > at_most:
                raise _TooLarge(at_most)
            with open(part, "ab" if have else "wb") as out, _bar(part.name.removesuffix(".part"), total, have) as bar:
                start, then = time.monotonic(), have
                while block := answer.raw.read1(_CHUNK, decode_content=True):
                    have += len(block)
                    if have > at_most:
                        raise _TooLarge(at_most)
                    out.write(block)
                    bar.update(len(block))
                    if (now := time.monotonic()) - start >= SLOW_SECONDS:
                        if have - then < SLOW_BYTES:
                            out.flush()
                            raise _Failed(
                                f"sent {have - then:,} bytes in {now - start:.0f} s, which is too slow" + _kept(part)
                            )
                        start, then = now, have
    except _TooLarge:
        part.unlink(missing_ok=True)
        raise
    except (requests.RequestException, urllib3.exceptions.HTTPError, OSError, ValueError) as error:
        _raise_if_here(error, part)
        raise _Failed(f"{type(error).__name__}: {_short(error)}" + _kept(part)) from error
    if total is not None and have < total:
        raise _Failed(f"broke off after {have:,} of {total:,} bytes" + _kept(part))


def _answer(session: "requests.Session", url: str, headers: dict[str, str]) -> "requests.Response":
    """The answer of a host, up to its content. In a thread of its own, because a host may send headers byte by byte. Raises what requests does."""
    found: list[requests.Response | Exception] = []

    def ask() -> None:
        try:
            found.append(session.get(url, headers=headers, stream=True, timeout=TIMEOUT))
        except Exception as error:
            found.append(error)

    asking = threading.Thread(target=ask, daemon=True)
    asking.start()
    asking.join(ANSWER_SECONDS)
    if not found:
        raise _Failed(f"has not answered within {ANSWER_SECONDS:g} s")
    if isinstance(found[0], Exception):
        raise found[0]
    return found[0]


def _raise_if_here(error: Exception, part: Path) -> None:
    """Raises WriteError where it is this disk that failed, and no source: the data can be had, once there is room."""
    if isinstance(error, OSError) and (
        error.errno in (errno.ENOSPC, errno.EDQUOT, errno.EROFS) or error.filename == str(part)
    ):
        raise WriteError(
            f"{part}: cannot be written ({error.strerror}); mend that, or free some space, and run the same command again: it continues where it was"
        ) from error


def _session() -> "requests.Session":
    """A session that follows no redirect from https to http: there anyone on the way could answer."""
    import requests

    class Session(requests.Session):
        def get_redirect_target(self, resp: requests.Response) -> str | None:
            target = super().get_redirect_target(resp)
            schemes = urlsplit(resp.url).scheme, urlsplit(urljoin(resp.url, target or "")).scheme
            if schemes == ("https", "http"):
                raise _Failed("redirects from https to http, which is not followed")
            return target

    return Session()


def _kept(part: Path) -> str:
    return (
        f"; {part.stat().st_size:,} bytes kept, run the same command again to continue"
        if part.exists() and part.stat().st_size
        else ""
    )


def _bar(name: str, total: int | None, start: int) -> "tqdm[NoReturn]":
    """A progress bar on a terminal; elsewhere a plain line every ten seconds."""
    terminal = sys.stderr.isatty()
    return tqdm(
        total=total,
        initial=start,
        desc=name,
        unit="B",
        unit_scale=True,
        unit_divisor=1024,
        leave=terminal,
        mininterval=0.2 if terminal else 10,
        delay=0 if terminal else 10,
        bar_format=None if terminal else "{desc}: {n_fmt} of {total_fmt} after {elapsed}\n",
    )


def _short(error: BaseException) -> str:
    """What a host says, on one line and without what a terminal would obey."""
    return printable(str(error))[:200]


def _below(mirror: str, path: str) -> str:
    return f"{mirror.rstrip('/')}/{quote(path)}" if is_url(mirror) else str(Path(mirror).expanduser() / path)


def is_url(source: str) -> bool:
    """Whether a mirror or a file's address is on another host."""
    return source.startswith(("http://", "https://"))


@cache
def _host_answers(scheme: str, host: str) -> bool:
    """Asked once per process. In a thread of its own, because looking up a name knows no time limit."""
    import requests

    answered = threading.Event()

    def ask() -> None:
        with contextlib.suppress(requests.RequestException):
            requests.head(f"{scheme}://{host}/", timeout=PROBE_TIMEOUT, allow_redirects=False)
            answered.set()

    asking = threading.Thread(target=ask, daemon=True)
    asking.start()
    asking.join(PROBE_TIMEOUT + 0.5)
    return answered.is_set()
