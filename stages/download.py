"""Download and pack datasets: python -m stages.download DATASET ..."""

from gt_bench.runtime.startup import run_module

if __name__ == "__main__":
    run_module("gt_bench.pipeline.download", "app")
