"""Write the leaderboard of a suite: python -m stages.leaderboard SUITE"""

from gt_bench.runtime.startup import run_module

if __name__ == "__main__":
    run_module("gt_bench.pipeline.leaderboard", "app")
