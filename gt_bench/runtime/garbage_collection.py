"""How often Python searches for reference cycles. No number depends on it; processor time does."""

import gc

USUAL, SELDOM = gc.get_threshold(), (50_000, 10, 10)


def search_seldom() -> None:
    """While modules are imported: torch, torch_geometric and MLflow make half a million objects that stay, and going through them again and again
    takes a quarter of their import (3.4 s of processor time instead of 2.6)."""
    gc.set_threshold(*SELDOM)


def spare_what_is_loaded() -> None:
    """Before a process trains that searched seldom until now: what it holds stays, and no later search goes through it (0.1 s each time, several
    times in a short run). Only the first time in a process, and only in one of ours: what is spared is never found to be garbage."""
    if gc.get_threshold() == SELDOM:
        gc.freeze()
        gc.set_threshold(*USUAL)
