"""Compute the encodings of a dataset: python -m stages.encode DATASET"""

from gt_bench.runtime.startup import run_module

if __name__ == "__main__":
    run_module("gt_bench.pipeline.encode")
