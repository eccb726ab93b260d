"""`python -m gt_bench.cli`, the same as `gt-bench`."""

from gt_bench.cli import main

if __name__ == "__main__":
    main()
