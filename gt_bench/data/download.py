"""Fetch raw files from mirrors (a folder with the layout of data/raw, or a URL prefix), then from official addresses.

Every file is compared with its pinned sha256 before it is moved into place. This module uses requests and not pooch:
pooch (1.9) supports one address per file, restarts broken downloads and deletes files with a wrong checksum.
"""

import errno
import hashlib
import os
import shutil
import sys
from collections.abc import Callable, Sequence
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, NoReturn
from urllib.parse import quote, urljoin, urlsplit

from tqdm import tqdm

from gt_bench.data.readers import file_digest
from gt_bench.data.spec import RemoteFile
from gt_bench.utils.errors import DatasetError
from gt_bench.utils.io import WriteError, held, make_folder
from gt_bench.utils.redact import printable, without_credentials

if TYPE_CHECKING:
    import requests

TIMEOUT = (5.0, 20.0)  # seconds to connect, and between two blocks of data
PROBE_TIMEOUT = 2.0  # seconds
_CHUNK = 1 << 18


class SourceError(DatasetError):
    """A raw file is not available.

    Args:
        reason: one sentence.
        tried: (source, error) of every source.
        remedy: what to do.
    """

    def __init__(self, reason: str, tried: list[tuple[str, str]], remedy: str):
        listing = "".join(f"\n  {source}: {error}" for source, error in tried)
        super().__init__(f"{reason}{'. Tried:' if tried else ''}{listing}", remedy=remedy)
        self.reason, self.tried = reason, tried


class _Failed(Exception):
    """A source failed."""


class _TooLarge(_Failed):
    def __init__(self, at_most: int):
        super().__init__(f"more than the {at_most:,} bytes that are expected")


def mirrors_in_order(mirrors: Sequence[str] = ()) -> list[str]:
    """List the mirrors in the order in which they are tried.

    Args:
        mirrors: folders or URL prefixes.

    Returns:
        Those of `GT_DATA_MIRROR` (separated by commas), then `mirrors`, without duplicates.
    """
    from_environment = [m.strip() for m in os.environ.get("GT_DATA_MIRROR", "").split(",") if m.strip()]
    return list(dict.fromkeys([*from_environment, *map(str, mirrors)]))


def fetch(
    file: RemoteFile, raw: Path, mirrors: Sequence[str] = (), say: Callable[[str], None] = lambda line: None
) -> Path:
    """Fetch a raw file, unless a correct one exists. Safe for several processes.

    A file with a wrong checksum is renamed to NAME.rejected-XXXXXXXX.

    Args:
        file: the raw file.
        raw: folder of raw files.
        mirrors: folders or URL prefixes.
        say: receives progress messages.

    Returns:
        Its path below `raw`.

    Raises:
        SourceError: all sources failed.
        WriteError: the file cannot be written.
    """
    target = raw / file.path
    make_folder(target.parent)
    # lock files are never deleted: a process that waits for a deleted one would not exclude later processes
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
        tried.append((str(target), f"{wrong}; renamed to {_reject(target, target).name}"))
    for source in _sources(file, mirrors):
        part = target.with_name(target.name + ".part")
        try:
            if is_url(source):
                _download(source, part, file.bytes, file.bytes or file.at_most)
            else:
                _copy(Path(source), part, file.bytes or file.at_most)
            wrong = _wrong(file, part)
            if wrong is not None:
                raise _Failed(f"{wrong}; renamed to {_reject(part, target).name}")
            os.replace(part, target)
            say(f"{file.path}: {target.stat().st_size:,} bytes from {without_credentials(source, source)}")
            return target
        except _Failed as error:
            tried.append((without_credentials(source, source), without_credentials(str(error), source)))
    digest = f" (its sha256 must be {file.sha256})" if file.sha256 else ""
    derived = f"\nIt is not an original file but derived: {file.derived}" if file.derived else ""
    raise SourceError(
        f"{file.path} is not available",
        tried,
        f"copy it by hand{digest}:\n  cp FILE {target}\n"
        f"or set a folder or URL that has it: GT_DATA_MIRROR=...{derived}",
    )


def reachable(file: RemoteFile, raw: Path, mirrors: Sequence[str] = ()) -> tuple[bool, str]:
    """Test whether `fetch` is likely to succeed. Cheap: looks for files, and probes each host once per process.

    Args:
        file: the raw file.
        raw: folder of raw files.
        mirrors: folders or URL prefixes.

    Returns:
        Whether it is, and the first source or the reason why not.
    """
    if (raw / file.path).exists():
        return True, str(raw / file.path)
    for source in _sources(file, mirrors_in_order(mirrors)):
        if not is_url(source):
            if Path(source).is_file():
                return True, source
        elif _host_answers(urlsplit(source).scheme, urlsplit(source).netloc):
            return True, without_credentials(source, source)
    return False, f"{file.path}: not in any mirror, and no host answers"


def _sources(file: RemoteFile, mirrors: Sequence[str]) -> list[str]:
    """List paths and URLs of a raw file: in the mirrors, then its own addresses."""

    def in_mirror(mirror: str) -> str:
        if is_url(mirror):
            return f"{mirror.rstrip('/')}/{quote(file.path)}"
        return str(Path(mirror).expanduser() / file.path)

    return [*map(in_mirror, mirrors), *file.urls]


def _wrong(file: RemoteFile, path: Path) -> str | None:
    size = path.stat().st_size
    if file.bytes is not None and size != file.bytes:
        return f"{size:,} bytes where {file.bytes:,} are expected{_where_pinned(file)}"
    digest = file_digest(path)
    if file.sha256 is not None and digest != file.sha256:
        return f"its sha256 is {digest}, not {file.sha256}{_where_pinned(file)}"
    if file.sha256 is None and file.md5 is not None and file_digest(path, "md5") != file.md5:
        return f"its md5 is not {file.md5}"
    return None


def _where_pinned(file: RemoteFile) -> str:
    if file.pinned is None:
        return ""
    return (
        f", which data.lock.json pins for {file.path} (pinned on first use, {file.pinned}); if you trust this new "
        "version, delete that entry of data.lock.json and run the command again"
    )


def _reject(path: Path, target: Path) -> Path:
    rejected = target.with_name(f"{target.name}.rejected-{file_digest(path)[:8]}")
    os.replace(path, rejected)
    return rejected


def _copy(source: Path, part: Path, at_most: int) -> None:
    if not source.is_file():
        raise _Failed("no such file")
    if source.stat().st_size > 2 * at_most:  # smaller ones are copied and fail their checksum
        raise _Failed(f"{source.stat().st_size:,} bytes, more than the {at_most:,} that are expected")
    try:
        shutil.copyfile(source, part)
    except OSError as error:
        _raise_if_local(error, part)
        raise _Failed(f"cannot be copied ({error.strerror})") from error


def _download(url: str, part: Path, size: int | None, at_most: int) -> None:
    """Download to `part`, resuming where an earlier attempt stopped.

    If the connection breaks, `part` remains for the next attempt. It is deleted if it exceeds `at_most` bytes.
    """
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
        headers |= {"Accept-Encoding": "identity"}
        with _session() as session, session.get(url, headers=headers, stream=True, timeout=TIMEOUT) as answer:
            if answer.status_code == 416:
                part.unlink(missing_ok=True)
                raise _Failed("the host cannot resume this download; run the command again to start over")
            answer.raise_for_status()
            if answer.status_code not in ((200, 206) if have else (200,)):
                raise _Failed(f"answers {answer.status_code}; expected 200")
            if not answer.headers.get("Content-Range", f"bytes {have}-").startswith(f"bytes {have}-"):
                raise _Failed(f"resumes at another byte than {have:,}" + _resumable(part))
            if answer.status_code != 206:
                have = 0
            length = int(answer.headers.get("Content-Length", -1))
            total = size or (have + length if length >= 0 else None)
            if length >= 0 and have + length > at_most:
                raise _TooLarge(at_most)
            with open(part, "ab" if have else "wb") as out, _bar(part.name.removesuffix(".part"), total, have) as bar:
                while block := answer.raw.read1(_CHUNK, decode_content=True):
                    have += len(block)
                    if have > at_most:
                        raise _TooLarge(at_most)
                    out.write(block)
                    bar.update(len(block))
    except _TooLarge:
        part.unlink(missing_ok=True)
        raise
    except (requests.RequestException, urllib3.exceptions.HTTPError, OSError, ValueError) as error:
        _raise_if_local(error, part)
        # a host's text may contain terminal control characters
        raise _Failed(f"{type(error).__name__}: {printable(str(error))[:200]}" + _resumable(part)) from error
    if total is not None and have < total:
        raise _Failed(f"connection closed after {have:,} of {total:,} bytes" + _resumable(part))


def _raise_if_local(error: Exception, part: Path) -> None:
    """Raise WriteError if the local disk failed and not the source: then other sources need not be tried."""
    if isinstance(error, OSError) and (
        error.errno in (errno.ENOSPC, errno.EDQUOT, errno.EROFS) or error.filename == str(part)
    ):
        raise WriteError(
            f"{part}: cannot be written ({error.strerror}); fix this, or free some space, and run the command again: "
            "the download resumes"
        ) from error


def _session() -> "requests.Session":
    """Make a session that refuses redirects from https to http, which could be intercepted."""
    import requests

    class Session(requests.Session):
        def get_redirect_target(self, resp: requests.Response) -> str | None:
            target = super().get_redirect_target(resp)
            schemes = urlsplit(resp.url).scheme, urlsplit(urljoin(resp.url, target or "")).scheme
            if schemes == ("https", "http"):
                raise _Failed("redirects from https to http, which is not allowed")
            return target

    return Session()


def _resumable(part: Path) -> str:
    size = part.stat().st_size if part.exists() else 0
    return f"; {size:,} bytes saved, run the command again to resume" if size else ""


def _bar(name: str, total: int | None, start: int) -> "tqdm[NoReturn]":
    """Make a progress bar on a terminal, else a line every ten seconds."""
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


def is_url(source: str) -> bool:
    """Test whether a mirror or an address is a URL."""
    return source.startswith(("http://", "https://"))


@cache
def _host_answers(scheme: str, host: str) -> bool:
    """Probe a host, once per process."""
    import requests

    try:
        requests.head(f"{scheme}://{host}/", timeout=PROBE_TIMEOUT, allow_redirects=False)
        return True
    except requests.RequestException:
        return False
