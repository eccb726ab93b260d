"""Records carried over: what was computed by older code, and is what the present code computes, bit for bit, as far as it was recomputed.

An attestation (`attest.py`) gives a shipped file the section

    carried: {commit, recomputed: [{seed, sha256[, cpu][, parts]}][, unreached: [module]], runs: {digest: {digest, recipe, digests}}, checksum}

`runs` says under which digest each record would be found now, `sha256` is the digest of what the recomputed runs found: what the record holds,
or, with `cpu`, what the older code and the present one both found on another processor. With `parts` it is of some parts of a run that train
independently, by their places in its curves. Where only modules `unreached` changed, which none of the runs took (`unreached.py`), nothing had to be
recomputed. The records themselves stay as they were. In a store they lie under their present digests too, each with its part of the section:

    carried_over: {commit, recomputed[, unreached], from: {digest, recipe, digests[, checksum]}, checksum}

Whoever doubts a mark holds its digests against the contents (`gt-bench store verify`) or computes the runs again (`gt-bench store attest`).
"""

from collections.abc import Mapping, Sequence
from typing import Final, TypeVar, cast

from stages.contents import Asked, Mark, Ran, Record, Section
from stages.recipe import digest_of
from stages.store import StoreError, sealed

MARK: Final = "carried_over"
SECTION_KEYS, MARK_KEYS = {"commit", "recomputed", "runs", "checksum"}, {"commit", "recomputed", "from", "checksum"}
# of the deterministic part: what a run was asked to do, which a refactoring may say in another way; all else is what it found
ASKED = ("recipe", "digests")
BEFORE_PARTS: Final = ("dataset", "metric", "direction", "seed", "split", "parameters")
Content = TypeVar("Content", bound=Mapping[str, object])


def content_digest(record: Record, parts: Sequence[int] | None = None) -> str:
    """sha256 of what a run found: status, curves, best epoch, metrics, parameters, error; digests and recipe aside. `parts`: of what these entries of its
    curves say, and of what is said before the first of them."""
    ran = record["deterministic"]
    if parts is None:
        return digest_of({k: v for k, v in ran.items() if k not in ASKED})
    return digest_of({**{k: ran[k] for k in BEFORE_PARTS}, "parts": [part_of(record, place) for place in parts]})


def part_of(record: Record, place: int) -> dict[str, object]:
    """What the curves of a run of several parts say of one; its number aside, which depends on which parts the run was asked for."""
    return {name: curve[place] for name, curve in sorted(record["deterministic"]["epochs"].items()) if name != "epoch"}


def with_checksum(content: Content) -> Content:
    """A section or a mark with the digest of the rest of it."""
    rest = {k: v for k, v in content.items() if k != "checksum"}
    return cast(Content, rest | {"checksum": digest_of(rest)})


def asked_of(record: Record) -> Asked:
    """The digest of a run, and what of it decides that."""
    return {"digest": record["digest"], "recipe": record["deterministic"]["recipe"], "digests": record["deterministic"]["digests"]}


def carry(record: Record, section: Section) -> Record:
    """The record as it would be found now, with its mark; the record itself where the section does not name it."""
    now = section["runs"].get(record["digest"])
    if now is None:
        return record
    ran = record["deterministic"]
    before = asked_of(record)
    if "checksum" in record:
        before["checksum"] = record["checksum"]
    mark: Mark = {"commit": section["commit"], "recomputed": section["recomputed"], "from": before}
    if "unreached" in section:
        mark["unreached"] = section["unreached"]
    found: Ran = {**ran, "recipe": now["recipe"], "digests": now["digests"]}
    return sealed({**record, "digest": now["digest"], "deterministic": found, "carried_over": with_checksum(mark)})


def original(record: Record) -> Record:
    """The record as it was before it was carried over; the record itself where it bears no mark."""
    if MARK not in record:
        return record
    before = record[MARK]["from"]
    ran: Ran = {**record["deterministic"], "recipe": before["recipe"], "digests": before["digests"]}
    content: Record = {**record, "digest": before["digest"], "deterministic": ran}
    del content[MARK]
    content.pop("checksum", None)
    if "checksum" in before:
        content["checksum"] = before["checksum"]
    return content


def section_of(records: Sequence[Record]) -> Section | None:
    """The section that gave these records their marks; None where none bears one. Raises StoreError for marks of two attestations."""
    marked = [r for r in records if MARK in r]
    if not marked:
        return None
    mark = marked[0][MARK]
    if any({**r[MARK], "from": None, "checksum": None} != {**mark, "from": None, "checksum": None} for r in marked):
        raise StoreError("its records were carried over by two attestations: run `gt-bench store import` for the present one, then export")
    runs = {r[MARK]["from"]["digest"]: asked_of(r) for r in marked}
    section: Section = {"commit": mark["commit"], "recomputed": mark["recomputed"], "runs": runs}
    if "unreached" in mark:
        section["unreached"] = mark["unreached"]
    return with_checksum(section)


def mark_problem(record: Record, trial: bool) -> str | None:
    """What is wrong with the form of a record's mark, or with what it says of this record's content (of trials it says nothing)."""
    mark = record[MARK]
    if problem := _problem(mark, MARK_KEYS):
        return problem
    if not isinstance(mark["from"], dict) or any(k not in mark["from"] for k in ("digest", *ASKED)):
        return "it does not say what it was carried over from"
    return _grounds_problem(mark, [] if trial else [record], complete=False)


def section_problem(section: Section, records: Sequence[Record], trials: Sequence[Record]) -> str | None:
    """What is wrong with a file's section, its records' digests aside."""
    if problem := _problem(section, SECTION_KEYS):
        return problem
    runs = section["runs"]
    if not isinstance(runs, dict) or not all(isinstance(run, dict) and {"digest", *ASKED} <= run.keys() for run in runs.values()):
        return "its runs have no digests"
    if unknown := runs.keys() - {r["digest"] for r in (*records, *trials)}:
        return f"no record has the digest {min(unknown)}"
    if len({run["digests"].get("code") if isinstance(run["digests"], dict) else None for run in runs.values()}) != 1:
        return "its runs are not of one state of the code"
    return _grounds_problem(section, records, complete=True)


def text_of(records: Sequence[Record]) -> str | None:
    """What boards show of a cell: "carried over (1 of 10 recomputed)"; None where no record was carried over."""
    marks = [r[MARK] for r in records if MARK in r]
    if not marks:
        return None
    seeds = {run["seed"] for mark in marks for run in mark["recomputed"]}
    computed = sum(MARK not in r or r["deterministic"]["seed"] in seeds for r in records)
    if not computed:
        return "carried over (what changed took no part)"
    counts = {len(run["parts"]) for mark in marks for run in mark["recomputed"] if "parts" in run}
    if counts:
        of_all = len(records[0]["deterministic"]["epochs"]["epoch"])
        return f"carried over ({computed} of {len(records)} recomputed, {min(counts)} of {of_all} parts)"
    return f"carried over ({computed} of {len(records)} recomputed)"


def note_of(records: Sequence[Record]) -> str | None:
    """The same for a remark: by which commit, and which seeds were recomputed."""
    mark = next((r[MARK] for r in records if MARK in r), None)
    if mark is None:
        return None
    if not mark["recomputed"]:
        return f"carried over by commit {mark['commit'][:12]}: only {', '.join(mark['unreached'])} changed, and no run took that"
    seeds = [str(run["seed"]) for run in mark["recomputed"]]
    cpus = sorted({run["cpu"] for run in mark["recomputed"] if "cpu" in run})
    how = f"computed by the older code and by this one on {', '.join(cpus)}, bit for bit the same" if cpus else "recomputed, bit for bit"
    if parts := [len(run["parts"]) for run in mark["recomputed"] if "parts" in run]:
        how += f" ({parts[0]} of its parts)"
    return f"carried over by commit {mark['commit'][:12]}: seed{'s' if len(seeds) > 1 else ''} {', '.join(seeds)} {how}"


def _problem(content: object, keys: set[str]) -> str | None:
    if not isinstance(content, dict) or not keys <= content.keys():
        return f"it lacks {', '.join(sorted(keys - content.keys() if isinstance(content, dict) else keys))}"
    if with_checksum(content)["checksum"] != content["checksum"]:
        return "it does not have the checksum that it names"
    if not isinstance(content["commit"], str):
        return "it names no commit"
    return None


def _grounds_problem(content: Section | Mark, records: Sequence[Record], complete: bool) -> str | None:
    """Recomputed runs must have found what the records hold, or modules be named of which no run took any. `complete`: `records` are all of
    the cell's."""
    recomputed, unreached = content["recomputed"], content.get("unreached", [])
    if not isinstance(unreached, list) or not all(isinstance(name, str) for name in unreached):
        return "the modules that it says changed have no names"
    if (
        not isinstance(recomputed, list)
        or not (recomputed or unreached)
        or not all(isinstance(run, dict) and {"seed", "sha256"} <= run.keys() for run in recomputed)
    ):
        return "it names no recomputed run"
    found = {r["deterministic"]["seed"]: r for r in records}
    for run in recomputed:
        record, parts = found.get(run["seed"]), run.get("parts")
        if record is None:
            if complete:
                return f"no record has the seed {run['seed']}, which it says was recomputed"
            continue
        if parts is not None and not _are_places(parts, len(record["deterministic"]["epochs"].get("epoch", []))):
            return f"seed {run['seed']} has no such parts as it says were recomputed"
        if "cpu" not in run and content_digest(record, parts) != run["sha256"]:
            return f"seed {run['seed']} found something else when it was recomputed"
    return None


def _are_places(parts: object, count: int) -> bool:
    """Whether they are different places in curves of `count` entries, at least one."""
    return (
        isinstance(parts, list) and bool(parts) and all(type(p) is int and 0 <= p < count for p in parts) and len(set(parts)) == len(parts)
    )
