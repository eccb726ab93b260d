"""Build of the wheel, which contains the suites and the grid as gt_bench/shipped/ (gt_bench/utils/paths.py)."""

import shutil
from pathlib import Path

from setuptools import setup
from setuptools.command.build_py import build_py

CARRIED = ("suites", "params.yaml", "grid.yaml")


class BuildWithFiles(build_py):
    """Copies files from the root of the checkout into the package."""

    def run(self) -> None:
        """Builds the package and copies the files."""
        super().run()
        if self.editable_mode:
            return
        target = Path(self.build_lib, "gt_bench", "shipped")
        shutil.rmtree(target, ignore_errors=True)
        target.mkdir(parents=True)
        for name in CARRIED:
            source = Path(__file__).parent / name
            if source.is_dir():
                shutil.copytree(source, target / name)
            else:
                shutil.copy(source, target / name)


setup(cmdclass={"build_py": BuildWithFiles})
