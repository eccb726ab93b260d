"""`python -m stages.cli`, which is `gt-bench`."""

from stages.cli import main

if __name__ == "__main__":
    main()
