"""The command line `gt-bench`."""

from gt_bench.runtime.startup import run_module


def main() -> None:
    """Run `gt-bench` and exit with its status."""
    run_module("gt_bench.cli.app")
