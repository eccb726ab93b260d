#!/bin/sh
# Use a GPU that is available for minutes: measure training steps, compute missing runs, pack the results.
#
#     sh tools/gpu_session.sh MINUTES SUITE|CELL ...
#
# Run it in the root of a checkout. It writes gpu-session.tar.gz; docs/gpu.md shows what to do with it.

usage() { sed -n '2,6s/^# \{0,1\}//p' "$0" >&2; exit 2; }
[ $# -ge 2 ] || usage
case $1 in *[!0-9]* | 0 | '') usage ;; esac
minutes=$1
shift
end=$(($(date +%s) + 60 * minutes))
mkdir gpu-session || exit 1
gt_bench() { python -m gt_bench.cli "$@"; }

# a quarter of the time
timeout $((15 * minutes)) python benchmarks/gpu.py >gpu-session/steps.md || echo "steps: not all were measured" >&2
# the rest; runs that are stopped need some seconds for a checkpoint, and the archive a few more
left=$((end - $(date +%s) - 30))
gt_bench work --hours "$(awk "BEGIN { print ($left > 1 ? $left : 1) / 3600 }")" "$@"
gt_bench store export --dirty --records gpu-session/records "$@"
tar czf gpu-session.tar.gz gpu-session store && echo "written: gpu-session.tar.gz"
