"""Addresses and paths as they may be printed, written and shared: without credentials, and without whose machine it was."""

import re
from pathlib import Path

# a query's value by its name, as in ?X-Amz-Signature=... or &token=...
_SECRET = re.compile(
    r"([?&][^=&\s]*(?:token|key|secret|sig|pass|pwd|credential|auth)[^=&\s]*=)[^&\s'\"]+", re.IGNORECASE
)
_USER = re.compile(r"([A-Za-z][\w+.-]*://)[^/\s'\"]*@")
_ABSOLUTE = re.compile(r"(?<![\w:/.~…])/(?:[^\s/:;,'\"]+/)+(?=[^\s/:;,'\"]+/[^\s/:;,'\"]+)")


def printable(text: str) -> str:
    """Foreign text on one line, its control and formatting characters cut."""
    return "".join(character for character in " ".join(text.split()) if character.isprintable())


def commit_id(text: object) -> str | None:
    """The commit that a record names, without "-dirty"; None for anything but the 7 to 64 hexadecimal digits of one. A record may come from
    anywhere, and a commit becomes an argument of git, or part of a command that a person copies."""
    clean = text.removesuffix("-dirty") if isinstance(text, str) else ""
    return clean if re.fullmatch(r"[0-9a-f]{7,64}", clean) else None


def without_credentials(text: str) -> str:
    """`text` with user, password and secret parts of queries cut from every URL in it."""
    return _SECRET.sub(r"\1***", _USER.sub(r"\1", text))


def shareable(text: str) -> str:
    """`without_credentials`; paths below the working directory are relative to it, and of other absolute ones the last two parts are left."""
    return _ABSOLUTE.sub("…/", without_credentials(text).replace(f"{Path.cwd()}/", ""))
