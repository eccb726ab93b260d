"""Downloads: order of sources, checksums, resuming, several processes, and the message if all sources fail."""

import contextlib
import errno
import hashlib
import http.server
import multiprocessing
import os
import socket
import threading
from collections.abc import Sequence
from pathlib import Path

import pytest
import requests

from gt_bench.data import download
from gt_bench.data.download import SourceError, fetch, mirrors_in_order, reachable
from gt_bench.data.spec import RemoteFile, file_entries
from gt_bench.utils.io import WriteError
from tests.refusals import refused

CONTENT = bytes(range(256)) * 4000
SHA = hashlib.sha256(CONTENT).hexdigest()


def remote(*urls: str) -> RemoteFile:
    return RemoteFile("a/b.bin", urls, SHA, len(CONTENT))


def fetched(folder: Path, *urls: str, mirrors: Sequence[Path] = ()) -> bool:
    """Fetch the file into folder/raw: is it the published one?"""
    return fetch(remote(*urls), folder / "raw", [*map(str, mirrors)]).read_bytes() == CONTENT


def begun(folder: Path, content: bytes = CONTENT[:1000], name: str = "b.bin.part") -> Path:
    """A folder with the first bytes of a file."""
    (folder / "a").mkdir(parents=True, exist_ok=True)
    (folder / "a" / name).write_bytes(content)
    return folder


@pytest.fixture(autouse=True)
def _no_environment(monkeypatch):
    monkeypatch.delenv("GT_DATA_MIRROR", raising=False)
    for name in ("http_proxy", "HTTP_PROXY"):
        monkeypatch.delenv(name, raising=False)
    download._host_answers.cache_clear()


@pytest.fixture
def mirror_folder(tmp_path):
    return begun(tmp_path / "mirror", CONTENT, "b.bin")


class Server:
    """A local HTTP server; it closes the connection after `cut` bytes."""

    def __init__(self):
        self.requests: list[tuple[str, str, str | None]] = []
        self.cut: int | None = None
        self.content = CONTENT
        self.ranges = self.length = True
        outer = self

        class Handler(http.server.BaseHTTPRequestHandler):
            def log_message(self, *arguments):
                pass

            def do_HEAD(self):
                self.send_response(200)
                self.end_headers()

            def do_GET(self):
                outer.requests.append((self.command, self.path, self.headers.get("Range")))
                if self.path.endswith("moved"):
                    self.send_response(302)
                    self.send_header("Location", "/b.bin")
                    self.end_headers()
                    return
                if self.path.endswith("refused"):
                    self.wfile.write(f"HTTP/1.0 403 {outer.reason}\r\n\r\n".encode())
                    return
                if not self.path.endswith("b.bin"):
                    self.send_error(404)
                    return
                start = 0
                if outer.ranges and self.headers.get("Range"):
                    start = int(self.headers["Range"].removeprefix("bytes=").rstrip("-"))
                    self.send_response(206)
                else:
                    self.send_response(200)
                body = outer.content[start:]
                if outer.length:
                    self.send_header("Content-Length", str(len(body)))
                self.end_headers()
                self.wfile.write(body[: outer.cut])

        self.http = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self.url = f"http://127.0.0.1:{self.http.server_address[1]}/b.bin"
        threading.Thread(target=self.http.serve_forever, daemon=True).start()


@pytest.fixture
def server():
    server = Server()
    yield server
    server.http.shutdown()
    server.http.server_close()


@pytest.fixture
def raw_server():
    """`raw_server(parts, pause)`: the address of a server that sends these bytes for any request, with pauses."""
    stopped, sockets = threading.Event(), []

    def serve(parts, pause: float = 0.0) -> str:
        listening = socket.create_server(("127.0.0.1", 0))
        sockets.append(listening)

        def answer() -> None:
            while True:
                try:
                    connection = listening.accept()[0]
                except OSError:
                    return
                with connection, contextlib.suppress(OSError):
                    head = connection.recv(4096).startswith(b"HEAD")
                    for part in [b"HTTP/1.1 200 OK\r\n\r\n"] if head else parts:
                        connection.sendall(part)
                        if not head and stopped.wait(pause):
                            return

        threading.Thread(target=answer, daemon=True).start()
        return f"http://127.0.0.1:{listening.getsockname()[1]}/b.bin"

    yield serve
    stopped.set()
    for listening in sockets:
        listening.close()


@pytest.mark.parametrize(
    ("answer", "words"),
    [
        (b"HTTP/1.1 416 Range Not Satisfiable\r\nContent-Length: 0\r\n\r\n", "cannot resume this download"),
        (b"HTTP/1.1 204 No Content\r\n\r\n", "answers 204"),
        (b"HTTP/1.1 304 Not Modified\r\n\r\n", "answers 304"),
        (b"HTTP/1.1 203 x\r\nContent-Length: 1\r\n\r\nx", "answers 203"),
        (b"HTTP/1.1 206 Partial Content\r\nContent-Length: 1\r\n\r\nx", "answers 206"),
    ],
)
@pytest.mark.parametrize("resumed", [False, True])
def test_answers_without_the_file_are_refused_and_the_next_source_is_tried(
    tmp_path, server, raw_server, answer, words, resumed
):
    if resumed:
        begun(tmp_path / "raw"), begun(tmp_path / "alone")
        if b"206" in answer:
            answer = answer.replace(b"\r\n\r\n", b"\r\nContent-Range: bytes 0-0/1\r\n\r\n")
            words = "resumes at another byte"
    both, alone = (
        RemoteFile("a/b.bin", urls, None, None, at_most=1 << 20)
        for url in [raw_server([answer])]
        for urls in ((url, server.url), (url,))
    )
    assert fetch(both, tmp_path / "raw").read_bytes() == CONTENT
    with pytest.raises(SourceError) as caught:
        fetch(alone, tmp_path / "alone")
    assert words in caught.value.tried[0][1]


def test_mirrors_come_first_and_a_good_file_is_stored(tmp_path, mirror_folder, server):
    messages = []

    def get():
        mirrors = [str(tmp_path / "empty"), str(mirror_folder)]
        return fetch(remote(server.url), tmp_path / "raw", mirrors, messages.append).read_bytes()

    assert get() == CONTENT
    assert messages == [f"a/b.bin: {len(CONTENT):,} bytes from {mirror_folder / 'a/b.bin'}"]
    (mirror_folder / "a/b.bin").write_bytes(b"bad")
    assert get() == CONTENT
    assert len(messages) == 1
    assert server.requests == []
    assert sorted(p.name for p in (tmp_path / "raw/a").iterdir()) == ["b.bin"]


def test_a_mirror_may_be_a_url_and_the_environment_comes_before_the_arguments(tmp_path, server, monkeypatch):
    url = server.url.removesuffix("/b.bin") + "/data"
    monkeypatch.setenv("GT_DATA_MIRROR", f"{tmp_path / 'none'}, {url}")
    assert mirrors_in_order(["x"]) == [str(tmp_path / "none"), url, "x"]
    assert fetched(tmp_path)
    assert server.requests == [("GET", "/data/a/b.bin", None)]


def test_a_broken_download_is_continued(tmp_path, server):
    server.cut = 300_000
    with pytest.raises(SourceError) as caught:
        fetched(tmp_path, server.url)
    assert "run the command again to resume" in caught.value.tried[0][1]
    assert not (tmp_path / "raw/a/b.bin").exists()
    received = (tmp_path / "raw/a/b.bin.part").stat().st_size
    assert 0 < received <= 300_000
    server.cut = None
    assert fetched(tmp_path, server.url)
    assert server.requests[-1][2] == f"bytes={received}-"


def test_a_source_that_hangs_is_left_for_the_next_one(tmp_path, server, raw_server, monkeypatch):
    monkeypatch.setattr(download, "TIMEOUT", (0.5, 0.5))
    hangs = raw_server([b"HTTP/1.1 200 OK\r\nContent-Length: %d\r\n\r\n" % len(CONTENT) + CONTENT[:9]], pause=30)
    assert fetched(tmp_path, hangs, server.url)
    assert len(server.requests) == 1


@pytest.mark.parametrize("by", ["folder", "host"])
def test_a_full_disk_is_no_missing_source(tmp_path, server, mirror_folder, monkeypatch, by):
    """Otherwise the stage would succeed with unavailable data, and DVC would not run it again."""

    def full(*arguments):
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    if by == "folder":
        monkeypatch.setattr(download.shutil, "copyfile", full)
    else:
        monkeypatch.setattr(download, "_bar", full)  # called before blocks are written
    mirrors = [mirror_folder] if by == "folder" else []
    with pytest.raises(WriteError):
        fetched(tmp_path, server.url, mirrors=mirrors)
    monkeypatch.undo()
    assert fetched(tmp_path, server.url, mirrors=mirrors)


def test_a_host_that_cannot_continue_starts_over(tmp_path, server):
    begun(tmp_path / "raw", b"x" * 100)
    server.ranges = False
    assert fetched(tmp_path, server.url)


def test_a_file_that_is_longer_than_published_is_not_read_to_its_end(tmp_path, server):
    server.content = CONTENT * 50
    with pytest.raises(SourceError):
        fetched(tmp_path, server.url)
    assert not (tmp_path / "raw/a/b.bin").exists()


@pytest.mark.parametrize("length", [True, False])
def test_a_file_of_unknown_size_has_a_bound(tmp_path, server, length):
    """Whether its length is announced or not. The partial file is deleted."""
    server.content, server.length = CONTENT * 20, length
    bound = len(CONTENT) * 2
    file = RemoteFile("a/b.bin", (server.url,), at_most=bound)
    with refused(SourceError, tried=[(server.url, f"more than the {bound:,} bytes that are expected")]):
        fetch(file, tmp_path)
    assert list((tmp_path / "a").iterdir()) == []
    server.content = CONTENT
    assert fetch(file, tmp_path).read_bytes() == CONTENT


def test_a_mirror_folder_is_bound_too(tmp_path, mirror_folder):
    with pytest.raises(SourceError):
        fetch(RemoteFile("a/b.bin", at_most=1000), tmp_path / "raw", [str(mirror_folder)])


def test_every_file_has_a_bound_and_comes_by_https():
    for path, entry in file_entries().items():
        assert all(url.startswith("https://") for url in entry["urls"]), path
        assert entry["bytes"] or entry.get("at_most") or not entry["urls"], path


@pytest.mark.parametrize(
    ("first", "location", "followed"),
    [
        ("https://a.org/x", "http://a.org/y", False),
        ("https://a.org/x", "//b.org/y", True),
        ("https://a.org/x", "/y", True),
        ("https://a.org/x", "HTTP://a.org/y", False),
        ("http://a.org/x", "http://a.org/y", True),
        ("http://a.org/x", "https://a.org/y", True),
    ],
)
def test_redirects_from_https_to_http_are_refused(first, location, followed):
    answer = requests.Response()
    answer.status_code, answer.url = 302, first
    answer.headers["Location"] = location
    if followed:
        assert download._session().get_redirect_target(answer) == location
    else:
        with pytest.raises(download._Failed):
            download._session().get_redirect_target(answer)


def test_control_characters_of_a_host_are_removed(tmp_path, server):
    server.reason = "<img src=x onerror=alert(1)> \x1b[31mred\x07 \u202etxt"
    with pytest.raises(SourceError) as caught:
        fetched(tmp_path, server.url.replace("b.bin", "refused"))
    assert "<img src=x onerror=alert(1)> [31mred" in str(caught.value)
    assert not [c for c in str(caught.value) if not c.isprintable() and c != "\n"]


def test_allowed_redirects_are_followed(tmp_path, server):
    assert fetched(tmp_path, server.url.replace("b.bin", "moved"))


def test_a_file_with_a_wrong_checksum_is_renamed_and_the_next_source_is_tried(tmp_path, mirror_folder, server):
    bad = begun(mirror_folder, b"y" * len(CONTENT), "b.bin") / "a/b.bin"
    assert fetched(tmp_path, server.url, mirrors=[mirror_folder])
    rejected = tmp_path / f"raw/a/b.bin.rejected-{hashlib.sha256(bad.read_bytes()).hexdigest()[:8]}"
    assert rejected.read_bytes() == bad.read_bytes() == b"y" * len(CONTENT)


def test_a_truncated_file_on_disk_is_renamed_and_fetched_again(tmp_path, mirror_folder):
    begun(tmp_path / "raw", CONTENT[:99], "b.bin")
    assert fetched(tmp_path, mirrors=[mirror_folder])
    assert len(list((tmp_path / "raw/a").glob("b.bin.rejected-*"))) == 1


DEAD = "http://127.0.0.1:9/b.bin"


def test_no_source_lists_all_and_names_the_command(tmp_path, server):
    absent = server.url.replace("b.bin", "absent")
    with pytest.raises(SourceError) as caught:
        fetched(tmp_path, absent, DEAD, mirrors=[tmp_path / "mirror"])
    sources = [str(tmp_path / "mirror/a/b.bin"), absent, DEAD]
    assert [source for source, _ in caught.value.tried] == sources
    command = f"\n  cp FILE {tmp_path / 'raw/a/b.bin'}\n"
    for part in (*sources, "no such file", "404", "does not answer", SHA, command):
        assert part in str(caught.value)


def test_reachable_is_cheap_and_right(tmp_path, mirror_folder, server):
    assert reachable(remote(), tmp_path / "raw", [str(mirror_folder)]) == (True, str(mirror_folder / "a/b.bin"))
    assert reachable(remote(server.url), tmp_path / "raw")[0]
    assert not reachable(remote(DEAD), tmp_path / "raw")[0]
    assert server.requests == []  # HEAD only


@pytest.mark.parametrize("path", ["../x", "/etc/x", "a/../../x", ""])
def test_paths_stay_below_the_raw_folder(path):
    with pytest.raises(ValueError, match="must stay below"):
        RemoteFile(path)


def _fetch_in_child(raw: Path, mirror: Path, results):
    messages = []
    fetch(remote(), raw, [str(mirror)], messages.append)
    results.put(len(messages))


def test_two_processes_both_succeed_and_one_does_the_work(tmp_path, mirror_folder):
    context = multiprocessing.get_context("fork")
    results = context.Queue()
    arguments = (tmp_path / "raw", mirror_folder, results)
    children = [context.Process(target=_fetch_in_child, args=arguments) for _ in range(4)]
    for child in children:
        child.start()
    for child in children:
        child.join(20)
    assert [child.exitcode for child in children] == [0] * 4
    assert sorted(results.get() for _ in children) == [0, 0, 0, 1]
