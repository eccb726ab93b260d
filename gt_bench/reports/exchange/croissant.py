"""Datasets as Croissant metadata (MLCommons, https://docs.mlcommons.org/croissant, version 1.0): DIR/DATASET.json.

The metadata has licence, citation, homepage, statistics, split protocol, and the raw files with address and checksum.
It has no record sets: the raw files have formats of their own, which `gt_bench/data/families/` reads.
"""

import json
from collections.abc import Iterable
from pathlib import Path

from gt_bench.data.pins import read_pins
from gt_bench.data.registry import get_spec
from gt_bench.data.spec import DatasetSpec, RemoteFile
from gt_bench.data.standin import shape_of
from gt_bench.utils.errors import DatasetError
from gt_bench.utils.io import write_json
from gt_bench.utils.json_types import Settings
from gt_bench.utils.versions import version_of

VERSION = "http://mlcommons.org/croissant/1.0"
LICENCES = {
    "MIT": "https://spdx.org/licenses/MIT.html",
    "CC BY 4.0": "https://creativecommons.org/licenses/by/4.0/",
    "GPL-3.0": "https://spdx.org/licenses/GPL-3.0-only.html",
    "ODC-BY": "https://spdx.org/licenses/ODC-By-1.0.html",
    "Apache-2.0": "https://spdx.org/licenses/Apache-2.0.html",
    "generated here": "https://spdx.org/licenses/MIT.html",
}
FORMATS = {
    ".json": "application/json", ".csv": "text/csv", ".txt": "text/plain", ".zip": "application/zip",
    ".tar": "application/x-tar", ".gz": "application/gzip", ".xz": "application/x-xz",
}  # fmt: skip
COUNTS = ("graphs", "nodes", "edges", "train", "val", "test", "num_splits", "out_dim")


def write(datasets: Iterable[str], folder: Path) -> tuple[list[Path], list[str]]:
    """Writes the metadata of datasets.

    Returns:
        The files, and a line per dataset that cannot be described.

    Raises:
        WriteError: a file cannot be written.
    """
    paths, problems = [], []
    for name in datasets:
        try:
            paths.append(write_json(folder / f"{name}.json", metadata(get_spec(name))))
        except DatasetError as error:
            problems.append(f"{name}: not exported: {error}")
    return paths, problems


def metadata(spec: DatasetSpec) -> Settings:
    """Returns the metadata of a dataset, as JSON-LD."""
    pins = read_pins()
    known = [(file, digest) for file in spec.files if (digest := _digest(file, pins.get(file.path)))]
    described = {file.path for file, _ in known}
    content: Settings = {
        "@context": CONTEXT,
        "@type": "sc:Dataset",
        "conformsTo": VERSION,
        "name": spec.name,
        "description": _description(spec, [file.path for file in spec.files if file.path not in described]),
        "version": f"{_version(spec)}.0.0",
        "keywords": ["graph", spec.task, spec.metric],
        "distribution": [_file(file, digest) for file, digest in known],
    }
    content |= {"citeAs": spec.citation} if spec.citation else {}
    content |= {"url": spec.homepage} if spec.homepage else {}
    content |= {"license": LICENCES.get(spec.licence, spec.licence)} if spec.licence != "not stated" else {}
    return content


def _version(spec: DatasetSpec) -> int:
    module = spec.prepare.__module__
    return version_of(module) if module.startswith("gt_bench.") else 1


def _digest(file: RemoteFile, pin: object) -> Settings:
    if sha256 := file.sha256 or getattr(pin, "sha256", None):
        return {"sha256": sha256}
    return {"md5": file.md5} if file.md5 else {}


def _file(file: RemoteFile, digest: Settings) -> Settings:
    content: Settings = {
        "@type": "cr:FileObject",
        "@id": file.path,
        "name": file.path,
        # a file that only mirrors have: its path below data/raw
        "contentUrl": file.urls[0] if file.urls else file.path,
        "encodingFormat": FORMATS.get(Path(file.path).suffix, "application/octet-stream"),
        **digest,
    }
    content |= {"contentSize": f"{file.bytes} B"} if file.bytes else {}
    remarks = "; ".join(filter(None, [file.note, file.derived, None if file.urls else "only mirrors have this file"]))
    return content | ({"description": remarks} if remarks else {})


def _description(spec: DatasetSpec, without_digest: list[str]) -> str:
    facts = [f"Task: {spec.task}, selected and compared by {spec.metric}; one target per {spec.level}"]
    try:
        shape = shape_of(spec)
    except DatasetError:
        pass
    else:
        counts = [f"{name} {value:,}" for name in COUNTS if (value := getattr(shape, name)) is not None]
        facts.append(f"Statistics: {', '.join(counts)}")
    facts.append(f"A split divides {spec.split_kind}s")
    facts += [f"Derived: {spec.derived}"] if spec.derived else []
    facts += [f"Arguments of the generator: {json.dumps(dict(spec.arguments), default=str)}"] if not spec.files else []
    facts += [f"Licence as stated: {spec.licence}"]
    facts += [f"Note: {note}" for note in spec.notes]
    if without_digest:
        facts.append(f"Raw files whose host publishes no checksum, not listed: {', '.join(without_digest)}")
    facts.append(f"Digest of its specification: {spec.digest}")
    return ". ".join(facts)


# the context that the specification of Croissant 1.0 prescribes
CONTEXT: Settings = {
    "@language": "en",
    "@vocab": "https://schema.org/",
    "sc": "https://schema.org/",
    "cr": "http://mlcommons.org/croissant/",
    "rai": "http://mlcommons.org/croissant/RAI/",
    "dct": "http://purl.org/dc/terms/",
    "citeAs": "cr:citeAs",
    "column": "cr:column",
    "conformsTo": "dct:conformsTo",
    "data": {"@id": "cr:data", "@type": "@json"},
    "dataType": {"@id": "cr:dataType", "@type": "@vocab"},
    "equivalentProperty": "cr:equivalentProperty",
    "examples": {"@id": "cr:examples", "@type": "@json"},
    "extract": "cr:extract",
    "field": "cr:field",
    "fileObject": "cr:fileObject",
    "fileProperty": "cr:fileProperty",
    "fileSet": "cr:fileSet",
    "format": "cr:format",
    "includes": "cr:includes",
    "isLiveDataset": "cr:isLiveDataset",
    "jsonPath": "cr:jsonPath",
    "key": "cr:key",
    "md5": "cr:md5",
    "parentField": "cr:parentField",
    "path": "cr:path",
    "recordSet": "cr:recordSet",
    "references": "cr:references",
    "regex": "cr:regex",
    "repeated": "cr:repeated",
    "replace": "cr:replace",
    "samplingRate": "cr:samplingRate",
    "separator": "cr:separator",
    "source": "cr:source",
    "subField": "cr:subField",
    "transform": "cr:transform",
}
