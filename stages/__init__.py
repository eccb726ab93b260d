"""DVC entry points, one script per stage. The library is gt_bench."""
