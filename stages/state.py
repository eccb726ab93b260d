"""Write the small files in state/ that the other stages depend on."""

from gt_bench.runtime.startup import run_module

if __name__ == "__main__":
    run_module("gt_bench.pipeline.state")
