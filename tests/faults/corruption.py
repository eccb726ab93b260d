"""Damage a file of each kind in a finished project: it must be reported or renamed, and then restored bit for bit."""

import json
import random
from collections.abc import Callable
from pathlib import Path

from tests.faults.world import World, do, remove_outs, tree

# file -> (its paths, the stage that reads it, the stage that writes it)
FILES = {
    "record": ("store/*/{run}/record.json", "train", "train"),  # {run}: the folder of a seed's run
    "journal": ("studies/small/mini/mlp/journal.log", "tune", "tune"),
    "packed data": ("data/packed/mini/data.safetensors", "train", "download"),
    "header": ("data/packed/mini/header.json", "train", "download"),
    "encodings": ("data/encodings/mini/*.safetensors", "train", "encode"),
    "pins": ("data.lock.json", "download", "download"),
    "tuned recipe": ("tuned/small/mini/mlp.yaml", "train", "tune"),
    "result": ("results/small/mini/gcn.json", "leaderboard", "train"),
    "state": ("state/cells/small/mini/gcn.json", "state", "state"),
}


def flip(content: bytes, draw: random.Random) -> bytes:
    """Change one bit: in the deterministic part of a record (the rest has no checksum), or in the digest of a pin."""
    start, end = 0, len(content)
    for first, last in ((b'"deterministic"', b'"measured"'), (b'"sha256": "', b'"bytes"')):
        if first in content and last in content and b"__metadata__" not in content:
            start, end = content.index(first) + len(first), content.index(last)
    place = draw.randrange(start, end)
    return content[:place] + bytes([content[place] ^ (1 << draw.randrange(8))]) + content[place + 1 :]


DAMAGES: dict[str, Callable[[bytes, random.Random], bytes]] = {
    "empty": lambda content, draw: b"",
    "cut": lambda content, draw: content[: draw.randrange(1, len(content))],
    "one bit": flip,
    "noise": lambda content, draw: draw.randbytes(len(content)),
    "zeros": lambda content, draw: bytes(len(content)),
}


def damage(world: World, finished: Path, what: str, how: str, seed: int) -> list[str]:
    """Damage a file of the project `finished`, run the stage that reads it, the one that writes it and later ones.

    Returns:
        Descriptions of everything that went wrong.
    """
    draw = random.Random(f"{what} {how} {seed}")
    pattern, reader, maker = FILES[what]
    runs = json.loads((finished / "results/small/mini/gcn.json").read_text())["runs"]
    path = draw.choice(sorted(finished.glob(pattern.format(run=draw.choice(runs)))))
    before = path.read_bytes()
    path.write_bytes(DAMAGES[how](before, draw))
    if path.read_bytes() == before:
        return []
    name, wrong = f"{what}, {how} ({seed})", []
    for stage in (reader, maker):
        if stage == maker:
            remove_outs(finished, stage)
        child = do(stage, finished)
        if "Traceback" in child.said or child.status not in (0, 1):
            wrong.append(f"{name}: {stage}: status {child.status}: {child.said[-1200:]}")
        elif child.status == 1 and path.name not in child.said and path.parent.name not in child.said:
            wrong.append(f"{name}: {stage}: the file is not named: {child.said[-600:]}")
        # if the stage does not write the file again, its message tells the user to delete the file or its entry
        if stage == maker and path.name in child.said and path.exists() and path.read_bytes() != before:
            path.unlink()
    for stage in dict.fromkeys((maker, reader)):
        remove_outs(finished, stage)
        child = do(stage, finished)
        if child.status:
            return [*wrong, f"{name}: {stage} after the remedy: status {child.status}: {child.said[-1200:]}"]
    # renamed files are additional, and a run with damaged settings is an attempt of its cell
    found, expected = (
        tree(finished),
        {file: content for file, content in world.after["leaderboard"].items() if not file.startswith("store/cells/")},
    )
    # a raw file that contradicts a damaged pin stays renamed if its packed form exists
    aside = {content for file, content in found.items() if ".rejected-" in file}
    return wrong + [
        f"{name}: {file}" for file in expected if found.get(file) != expected[file] and expected[file] not in aside
    ]
