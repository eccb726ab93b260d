"""Train a cell: python -m stages.train suite/dataset/row"""

from gt_bench.runtime.startup import run_module

if __name__ == "__main__":
    run_module("gt_bench.pipeline.train")
