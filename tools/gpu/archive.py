"""The archive of a session: what `gt-bench store import --records ARCHIVE` reads, and measurements for people.

    summary.md, machine.json, checks.jsonl, steps.jsonl, *.log
    records/SUITE/records/DATASET/ROW.json.gz           as `gt-bench store export` writes them
    checkpoints/XX/DIGEST/checkpoint.safetensors        of runs that did not end
    traces/CELL.FORM.json.gz                            for ui.perfetto.dev

The content goes in by value: measurements, records, checkpoints from the smallest, traces from the smallest. What does
not fit is listed in summary.md.
"""

import io
import json
import statistics
import tarfile
from collections.abc import Sequence
from pathlib import Path
from typing import Any

LIMIT_MIB = 60.0
OVERHEAD = 2048  # bytes of a member besides its content, at most
LONGEST_LOG = 1 << 20  # bytes of the end of a log
NAME = "gpu-session"


def members(out: Path) -> list[Path]:
    """Return the files of a session, the most valuable first."""
    found = [out / name for name in ("machine.json", "checks.jsonl", "steps.jsonl")]
    found += sorted(out.glob("*.log"))
    found += sorted(out.glob("records/*/records/*/*.json.gz")) + sorted(out.glob("records/*/records/*/*.zip"))
    for pattern in ("checkpoints/*/*/*.safetensors", "traces/*.json.gz"):
        found += sorted(out.glob(pattern), key=lambda path: (path.stat().st_size, str(path)))
    return [path for path in found if path.is_file()]


def pack(out: Path, limit_mib: float = LIMIT_MIB) -> tuple[Path, list[str]]:
    """Write the archive of a session.

    Args:
        out: folder of the session.
        limit_mib: most MiB of the archive.

    Returns:
        The archive, and a line for each file that did not fit.
    """
    left, chosen, dropped = limit_mib * 2**20 - (1 << 18), [], []
    for path in members(out):
        content = path.read_bytes()
        if path.suffix == ".log":
            content = content[-LONGEST_LOG:]
        if len(content) + OVERHEAD > left:
            dropped.append(f"{path.relative_to(out)}: {len(content) / 2**20:.1f} MiB do not fit")
            continue
        left -= len(content) + OVERHEAD
        chosen.append((path.relative_to(out), content))
    text = summary(out, dropped)
    (out / "summary.md").write_text(text, encoding="utf-8")
    archive = out / f"{NAME}.tar.gz"
    partial = archive.with_suffix(".partial")
    with tarfile.open(partial, "w:gz", compresslevel=6) as file:
        for name, content in [(Path("summary.md"), text.encode()), *chosen]:
            entry = tarfile.TarInfo(str(name))
            entry.size = len(content)
            file.addfile(entry, io.BytesIO(content))
    partial.replace(archive)  # a cut leaves the previous archive
    return archive, dropped


def rows(path: Path) -> list[dict[str, Any]]:
    """Return the rows of a file of JSON lines; the last one may have been cut."""
    found = []
    for line in path.read_text(encoding="utf-8").splitlines() if path.exists() else ():
        try:
            found.append(json.loads(line))
        except ValueError:
            break
    return found


def summary(out: Path, dropped: Sequence[str] = ()) -> str:
    """Return the results of a session in Markdown."""
    machine = json.loads((out / "machine.json").read_text()) if (out / "machine.json").exists() else {}
    lines = ["# GPU session", "", *(f"- {key}: {value}" for key, value in machine.items()), ""]
    checks = rows(out / "checks.jsonl")
    failed = [row for row in checks if row["outcome"] == "failed"]
    passed = sum(row["outcome"] == "passed" for row in checks)
    lines += [f"## Checks: {passed} passed, {len(failed)} failed, {len(checks) - passed - len(failed)} skipped", ""]
    lines += [f"- {row['test']}: {last_line(row['why'])}" for row in failed]
    lines += ["", "## Training steps", ""]
    columns = (
        "cell",
        "form",
        "ms",
        "10 to 90 %",
        "faster than plain",
        "launches",
        "kernels",
        "busy ms",
        "busy %",
        "MiB",
    )
    lines += [f"| {' | '.join(columns)} |", "|---" * len(columns) + "|"]
    steps = rows(out / "steps.jsonl")
    plain = {row["cell"]: row["ms"] for row in steps if row["form"] == "definitions" and "ms" in row}
    for row in sorted(steps, key=lambda row: row["cell"]):
        if "error" in row:
            lines.append(f"| {row['cell']} | {row['form']} | {row['error'].replace('|', '/')} |" + " |" * 7)
            continue
        ratio = f"{plain[row['cell']] / row['ms']:.2f}" if row["cell"] in plain else "-"
        busy = "-" if row["busy_share"] is None else f"{100 * row['busy_share']:.0f}"
        memory = f"{row['peak_mib']:,.0f}" if "peak_mib" in row else "-"
        lines.append(
            f"| {row['cell']} | {row['form']} | {row['ms']:.2f} | {row['ms_10']:.2f} to {row['ms_90']:.2f} | {ratio} | "
            f"{row['launches']} | {row['kernels']} | {row['busy_ms']:.2f} | {busy} | {memory} |"
        )
    if ratios := [
        plain[r["cell"]] / r["ms"] for r in steps if r["form"] == "ours" and r["cell"] in plain and "ms" in r
    ]:
        lines += ["", f"Our forms: median {statistics.median(ratios):.2f} times as fast as the definitions."]
    records = sorted(out.glob("records/*/records/*/*.json.gz"))
    lines += ["", f"## Records: {len(records)} cells", "", *(f"- {path.relative_to(out)}" for path in records)]
    lines += ["", f"## Left out: {len(dropped)} files", "", *(f"- {line}" for line in dropped)]
    return "\n".join(lines) + "\n"


def last_line(text: str | None) -> str:
    """Return the last line of an error; an empty text if there is none."""
    return (text or "").strip().rpartition("\n")[2]
