"""The commit of the code of this process."""

import subprocess
from pathlib import Path

from gt_bench.utils.code_digest import ROOT
from gt_bench.utils.paths import SHIPPED

# git pathspecs of files that decide numbers. Other files only decide which cells run and how they are reported
# (dvc.yaml, grid.yaml, records, docs/).
DECIDING = ("gt_bench", "gt_models", "suites/*/recipes/*", "suites/*.py", "params.yaml")


def commit(root: Path = ROOT) -> str | None:
    """Return the commit of the working tree, with "-dirty" if a file that decides numbers (`DECIDING`) was changed.

    Args:
        root: folder of the repository.

    Returns:
        None outside a repository that contains this code, and for an installed package.
    """
    if SHIPPED.is_dir():
        return None

    def git(*arguments: str) -> str:
        command = ["git", *arguments]
        return subprocess.run(command, cwd=root, capture_output=True, encoding="utf-8", check=True).stdout.strip()

    try:
        if not git("ls-files", "gt_models"):
            return None  # the code was unpacked inside another repository
        head = git("rev-parse", "HEAD")
        changed = git("status", "--porcelain", "--untracked-files=normal", "--", *DECIDING)
    except (OSError, subprocess.CalledProcessError):
        return None
    return head + ("-dirty" if changed else "")
