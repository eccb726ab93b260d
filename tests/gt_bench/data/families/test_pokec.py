"""pokec: small files in the official format."""

import numpy as np
from scipy.io import loadmat

from gt_bench.utils.errors import DatasetError
from tests.gt_bench.data.checks import made
from tests.gt_bench.data.raw_files import RAW
from tests.refusals import refused


def test_pokec(tmp_path):
    spec, paths = RAW["pokec"](tmp_path)
    matrix, file = files = [*paths.values()]
    dataset = made(spec, tmp_path / "out", *files)
    splits = np.load(file, allow_pickle=True)
    np.testing.assert_array_equal(dataset.split("test", 2), np.sort(splits[2]["test"]))
    assert dataset.header.statistics["unlabelled"] == (loadmat(matrix)["label"] < 0).sum() > 0
    np.save(file, splits[:2], allow_pickle=True)
    with refused(DatasetError, file=str(file)):
        made(spec, tmp_path / "out2", *files)
    matrix.write_bytes(b"MATLAB no more")
    with refused(DatasetError, file=str(matrix)):
        made(spec, tmp_path / "out2", *files)
