"""Removal of credentials and local paths from text that is printed, written or shared."""

import re
from pathlib import Path

# Values in the query of a URL, by name: ?X-Amz-Signature=... or &token=...
_SECRET = re.compile(
    r"([?&][^=&\s]*(?:token|key|secret|sig|pass|pwd|credential|auth)[^=&\s]*=)[^&\s'\"]+", re.IGNORECASE
)
_USER = re.compile(r"([A-Za-z][\w+.-]*://)[^/\s'\"]*@")
_ABSOLUTE = re.compile(r"(?<![\w:/.~…])/(?:[^\s/:;,'\"]+/)+(?=[^\s/:;,'\"]+/[^\s/:;,'\"]+)")


def printable(text: str) -> str:
    """Return untrusted text on one line, without control and formatting characters."""
    return "".join(character for character in " ".join(text.split()) if character.isprintable())


def commit_id(text: object) -> str | None:
    """Return the commit of a record without "-dirty"; None unless it has 7 to 64 hexadecimal digits.

    A record may come from anywhere, and its commit becomes an argument of git or part of a command that users copy.
    """
    clean = text.removesuffix("-dirty") if isinstance(text, str) else ""
    return clean if re.fullmatch(r"[0-9a-f]{7,64}", clean) else None


def without_credentials(text: str) -> str:
    """Return `text` without user names, passwords and secret query values in its URLs."""
    return _SECRET.sub(r"\1***", _USER.sub(r"\1", text))


def shareable(text: str) -> str:
    """Return `text` without credentials and with short paths.

    Paths below the working directory become relative; other absolute paths keep their last two parts.
    """
    return _ABSOLUTE.sub("…/", without_credentials(text).replace(f"{Path.cwd()}/", ""))
