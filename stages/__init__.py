"""The pipeline: one module per DVC stage, and the rooms they share. Knows gt_models; nothing knows it."""

import os.path
import signal
import sys

if sys.argv[:1] == ["-m"] or os.path.basename(sys.argv[0]) == "gt-bench":  # a process of ours, not somebody's that imports us
    from stages.garbage import search_seldom

    search_seldom()
if sys.argv[:1] == ["-m"] and signal.getsignal(signal.SIGINT) is signal.default_int_handler:
    # `python -m stages.NAME`: Ctrl-C while it imports ends it without a traceback; from stages/command.py on it is said in a line
    signal.signal(signal.SIGINT, signal.SIG_DFL)
