"""The command line that all scripts share."""

import argparse


def parser_of(doc: str | None) -> argparse.ArgumentParser:
    """Of a script, whose --help is its docstring: what it measures, what it prints, how long it takes."""
    return argparse.ArgumentParser(description=doc, formatter_class=argparse.RawDescriptionHelpFormatter)
