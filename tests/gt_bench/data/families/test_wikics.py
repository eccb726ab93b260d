"""wikics: a small JSON file in the official format."""

import json

import numpy as np

from gt_bench.utils.errors import DatasetError
from tests.gt_bench.data.checks import made
from tests.gt_bench.data.raw_files import RAW
from tests.refusals import refused


def test_wikics(tmp_path):
    spec, paths = RAW["wikics"](tmp_path)
    (file,) = paths.values()
    data = json.loads(file.read_text())
    dataset = made(spec, tmp_path / "out", file)
    assert dataset.header.num_splits == 3
    validated = np.array(data["val_masks"][1]) | np.array(data["stopping_masks"][1])
    np.testing.assert_array_equal(dataset.split("val", 1), np.flatnonzero(validated))
    np.testing.assert_array_equal(dataset.split("test", 1), np.flatnonzero(data["test_mask"]))
    assert dataset.header.statistics["symmetric"]
    for flaw, cause in (('{"features": 1}', "KeyError"), ("[1,", "JSONDecodeError"), ("[" * 200_000, "RecursionError")):
        file.write_text(flaw)
        with refused(DatasetError, file=str(file)) as error:
            made(spec, tmp_path / "out2", file)
        assert f"not WikiCS' JSON ({cause}" in error.value.problem
    file.write_text(json.dumps(data | {"links": [[99]] * len(data["labels"])}))
    with refused(DatasetError, value=99):
        made(spec, tmp_path / "out2", file)
