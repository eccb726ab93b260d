"""A new process of the miniature, which a command starts: a job of `gt-bench work`, or a stage of DVC.

python -m tests.faults.stage job < JOB.json
python -m tests.faults.stage train CELL
python -m tests.faults.stage leaderboard
"""

import sys

from gt_bench.config.grid import load_grid
from gt_bench.pipeline import job
from gt_bench.pipeline.train import train_cell
from tests.faults.world import STAGES, install

install()
match sys.argv[1:]:
    case ["job"]:
        sys.exit(job.main())
    case ["train", name]:
        grid = load_grid()
        train_cell(grid.find(name), grid)
    case ["leaderboard"]:
        STAGES["leaderboard"].work()
