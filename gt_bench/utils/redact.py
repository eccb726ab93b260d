"""Removal of credentials and local paths from text that is printed, written or shared."""

import os
import re
from collections.abc import Iterable, Iterator
from pathlib import Path
from urllib.parse import quote, unquote

# Variables whose values are addresses, separated by commas. A password in them may have any character.
CONFIGURED = ("MLFLOW_TRACKING_URI", "GT_STUDY_STORAGE", "GT_DATA_MIRROR")
# Values in the query or fragment of a URL, by name: ?X-Amz-Signature=... or &token=...
_SECRET = re.compile(
    r"([?&#;][^=&\s]*(?:token|key|secret|sig|pass|pwd|credential|auth)[^=&\s]*=)[^&\s'\"]+", re.IGNORECASE
)
_USER = re.compile(r"([A-Za-z][\w+.-]*://)[^/\s'\"]*@")
_PROFILE = re.compile(r"(databricks[\w-]*://)[^\s'\"]+")
_FILE = re.compile(r"file://(?:localhost)?(?=/)")
_ABSOLUTE = re.compile(r"(?<![\w:/.~…])~?/(?:[^\s/:;,'\"]+/)+(?=[^\s/:;,'\"]+/[^\s/:;,'\"]+)")


def printable(text: str) -> str:
    """Return untrusted text on one line, without control and formatting characters."""
    return "".join(character for character in " ".join(text.split()) if character.isprintable())


def shown(cell: object) -> str:
    """Return a value for a message: at most 40 printable characters, on one line."""
    text = printable(str(cell))
    return text if len(text) <= 40 else f"{text[:40]}..."


def commit_id(text: object) -> str | None:
    """Return the commit of a record without "-dirty"; None unless it has 7 to 64 hexadecimal digits.

    A record may come from anywhere, and its commit becomes an argument of git or part of a command that users copy.
    """
    clean = text.removesuffix("-dirty") if isinstance(text, str) else ""
    return clean if re.fullmatch(r"[0-9a-f]{7,64}", clean) else None


def without_credentials(text: str, *addresses: str) -> str:
    """Return `text` without user names, passwords and secret query values in its URLs.

    Args:
        text: to print or write.
        *addresses: whose user name and password are removed literally, as are those of CONFIGURED.
    """
    configured = [address for name in CONFIGURED for address in os.environ.get(name, "").split(",")]
    for secret in sorted({*_secrets([*addresses, *configured])}, key=len, reverse=True):
        text = text.replace(secret, "***")
    return _SECRET.sub(r"\1***", _PROFILE.sub(r"\1***", _USER.sub(r"\1", text)))


def _secrets(addresses: Iterable[str]) -> Iterator[str]:
    """Yield passwords, as they are and unquoted, and their parts: libraries cut an address at `/`, `?` or `@`."""
    for address in addresses:
        user, _, _ = address.partition("://")[2].rpartition("@")
        if "/" in user and ":" not in user.partition("/")[0]:  # https://host/user@name
            continue
        password = user.partition(":")[2] or user
        for text in (password, unquote(password)):
            yield from (part for part in (text, *re.split(r"[/?#@\s'\"]", text)) if len(part) > 2)


def shareable(text: str) -> str:
    """Return `text` without credentials, home folder and name of the user, and with short paths.

    Paths below the working directory become relative, the home folder becomes `~`, and other absolute paths keep their
    last two parts.
    """
    text, home = _FILE.sub("", without_credentials(text)), Path.home()
    for folder, inside, itself in ((Path.cwd(), "", "."), (home, "~/", "~"), (home.resolve(), "~/", "~")):
        for path in {str(folder), quote(str(folder))} - {"/"}:
            at = rf"(?<![\w.~/-]){re.escape(path)}"
            text = re.sub(rf"{at}(?![\w./-])", itself, re.sub(f"{at}/", inside, text))
    text = re.sub(rf"(?<=/){re.escape(home.name)}(?![\w.-])", "…", text) if home.name else text
    return _ABSOLUTE.sub("…/", text)
