"""Features that are scaled and filled with what the training part of a split shows, and nothing else."""

import json

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.stats import norm

from gt_bench.config.recipe import Recipe
from gt_bench.config.recipe_sections import FeaturesSection
from gt_bench.config.schema import RecipeError
from gt_bench.data.packed import PackedDataset
from gt_bench.experiment.run import Experiment
from gt_bench.training.feature_preparation import prepared, prepared_header
from tests.gt_bench import runs
from tests.gt_bench.conftest import RECIPE
from tests.gt_bench.custom_data import packed as pack_source

NAN = float("nan")


def dataset(tmp_path, x, train: int = 6, splits: int = 1, name: str = "own") -> PackedDataset:
    """One graph whose first `train` nodes are the training part of split 0, and its last ones that of split 1."""
    x = np.asarray(x, np.float32)
    codes = np.array([1] * train + [2, 3] + [3] * (len(x) - train - 2))
    split = np.stack([codes, codes[::-1]])[:splits]
    folder = tmp_path / "raw"
    folder.mkdir(exist_ok=True)
    np.savez(folder / f"{name}.npz", x=x, edge_index=np.array([[0, 1], [1, 0]]), y=np.arange(len(x)) % 2, split=split)
    return pack_source(folder / f"{name}.npz", tmp_path / "packed" / name, name=name)


def x_of(packed: PackedDataset) -> torch.Tensor:
    return packed.batch(torch.arange(packed.num_graphs)).x


def features(packed, split=0, **section):
    return x_of(prepared(packed, FeaturesSection(**section), split)).numpy()


def test_standard_scaling_is_fitted_on_each_training_part(tmp_path):
    x = np.random.default_rng(0).normal(5, 3, (20, 3))
    packed = dataset(tmp_path, x, splits=2)
    x = x.astype(np.float32).astype(np.float64)
    for split, part in ((0, x[:6]), (1, x[-6:])):
        np.testing.assert_allclose(
            features(packed, split, scale="standard"), (x - part.mean(0)) / part.std(0), rtol=1e-5, atol=1e-6
        )
    assert torch.equal(x_of(packed), torch.from_numpy(x.astype(np.float32))), "the dataset is unchanged"


@pytest.mark.slow
@settings(max_examples=30)
@given(
    scale=st.sampled_from(["standard", "quantile", "none"]),
    missing=st.sampled_from(["mean", "indicator"]),
    seed=st.integers(0, 20),
)
def test_other_rows_decide_nothing(tmp_path_factory, scale, missing, seed):
    """Rows outside of the training part may be anything: the training rows come out the same."""
    rng = np.random.default_rng(seed)
    x = rng.normal(size=(12, 3))
    x[rng.random(x.shape) < 0.2] = NAN
    x[:2] = [[1.0, 2.0, NAN], [3.5, 2.5, 0.1]]
    x[11] = NAN  # each column has a gap somewhere, so that the width is the same
    other = x.copy()
    other[6:11] = rng.choice([1e6, -3.0, NAN], (5, 3))
    tmp_path = tmp_path_factory.mktemp("features")
    one, two = (dataset(tmp_path, values, name=name) for values, name in ((x, "one"), (other, "two")))
    section = {"scale": scale, "missing": missing}
    expected = features(one, **section)[:6]
    np.testing.assert_array_equal(features(two, **section)[:6], expected)
    assert np.isfinite(features(two, **section)).all()


def test_quantiles_of_a_normal_distribution(tmp_path):
    x = np.exp(np.random.default_rng(0).normal(size=(300, 1)))
    found = features(dataset(tmp_path, x, train=250), scale="quantile")[:, 0]
    assert (np.argsort(found[:250]) == np.argsort(x[:250, 0].astype(np.float32))).all(), (
        "the order is that of the values"
    )
    np.testing.assert_allclose(np.sort(found[:250])[1:-1], norm.ppf(np.arange(1, 249) / 249), rtol=1e-4, atol=1e-6)


@pytest.mark.parametrize("scale", ["standard", "quantile"])
def test_columns_that_are_not_scaled(tmp_path, scale):
    """Constant in training, flags in training, and a quantity."""
    x = np.array([[7, i % 2, 0, i] for i in range(6)] + [[9, 1, 1, 2], [7, 0, 0, 3], [8, 5, 0, 4]], float)
    found = features(dataset(tmp_path, x), scale=scale)
    assert found[:, 0].tolist() == [0] * 9, "constant in the training part: 0 everywhere"
    assert found[:, 1].tolist() == x[:, 1].tolist(), "only 0 and 1 in the training part: unchanged"
    assert found[:, 2].tolist() == [0] * 9
    assert found[:6, 3].std() > 0.9


def test_missing_values_become_the_mean_of_the_training_part(tmp_path):
    x = [[1.0, 5.0], [3.0, NAN], [NAN, NAN], [NAN, 7.0], [2.0, 9.0], [2.0, 7.0], [NAN, 100.0], [50.0, NAN]]
    packed = dataset(tmp_path, x)
    assert packed.header.statistics["missing"] == {"0": 3, "1": 3}
    found = features(packed, missing="mean")
    assert found.tolist() == [[1, 5], [3, 7], [2, 7], [2, 7], [2, 9], [2, 7], [2, 100], [50, 7]]
    scaled = features(packed, missing="mean", scale="standard")
    known = np.array([1.0, 3.0, 2.0, 2.0])
    np.testing.assert_allclose(scaled[:, 0], np.nan_to_num((np.array(x)[:, 0] - known.mean()) / known.std()), rtol=1e-6)


def test_indicators_follow_the_columns_with_gaps_anywhere(tmp_path):
    x = [[i / 7, NAN if i == 7 else 1.5 * i, 2.5 * i + 1] for i in range(8)]
    packed = dataset(tmp_path, x, splits=2)
    section = FeaturesSection(missing="indicator")
    assert prepared_header(packed.header, section).in_dim == 4
    for split in (0, 1):  # the gap is in the test part of split 0, in the training part of split 1
        assert features(packed, split, missing="indicator")[:, 3].tolist() == [0] * 7 + [1]
    assert prepared(packed, section, 0).header.in_dim == 4


@pytest.mark.parametrize("scale", ["none", "standard", "quantile"])
def test_a_column_without_a_known_value_in_training_is_zero(tmp_path, scale):
    x = [[NAN, i / 3] for i in range(6)] + [[4.0, 0.5], [NAN, 0.25], [5.0, 1.0]]
    found = features(dataset(tmp_path, x), scale=scale, missing="indicator")
    assert found[:, 0].tolist() == [0] * 9
    assert found[:, 2].tolist() == [1] * 6 + [0, 1, 0]


def test_one_training_row(tmp_path):
    packed = dataset(tmp_path, [[1.0, NAN], [2.0, 3.0], [3.0, 4.0], [5.0, 1.0]], train=1)
    with pytest.raises(
        ValueError, match="'own': the train part of split 0 has 1 node, in which every column of x is constant"
    ):
        features(packed, scale="standard", missing="mean")
    assert features(packed, missing="mean").tolist() == [[1, 0], [2, 0], [3, 0], [5, 0]], "nothing is known of column 1"


def test_nodes_of_training_graphs(tmp_path):
    from tests.gt_bench.conftest import pack_many

    pack_many(tmp_path)
    packed = PackedDataset.open(tmp_path / "packed/many")
    x, train = x_of(packed).double(), packed.split("train")
    rows = torch.isin(torch.arange(packed.num_graphs).repeat_interleave(packed.sizes), train)
    expected = (x - x[rows].mean(0)) / x[rows].std(0, unbiased=False)
    found = prepared(packed, FeaturesSection(scale="standard"), 0)
    torch.testing.assert_close(x_of(found).double(), expected, rtol=1e-5, atol=1e-6)
    few = torch.tensor([4, 2])
    expected = torch.cat([x_of(found).split(packed.sizes.tolist())[graph] for graph in (4, 2)])
    torch.testing.assert_close(found.batch(few).x, expected)


# in recipes


def experiment(tmp_path, **changes) -> Experiment:
    return runs.experiment(tmp_path, "own", **changes)


def test_a_recipe_without_the_section_has_its_old_identity(tmp_path):
    plain = Recipe(**RECIPE)
    assert "features" not in json.dumps(plain.decisive())
    assert Recipe(**RECIPE, features={"scale": "none", "missing": "error"}).decisive() == plain.decisive()
    scaled = Recipe(**RECIPE, features={"scale": "standard"})
    assert scaled.decisive()["features"] == {"scale": "standard", "missing": "error"}
    dataset(tmp_path, np.random.default_rng(0).normal(size=(20, 3)))
    digests = {experiment(tmp_path, features={"scale": scale}).digest(0) for scale in ("none", "standard", "quantile")}
    assert len(digests) == 3
    assert experiment(tmp_path, features={"scale": "standard"}).versions["features"] == 1
    assert "features" not in experiment(tmp_path).versions


def test_a_run_with_gaps(tmp_path):
    x = np.random.default_rng(0).normal(size=(40, 3))
    x[3, 1] = x[30, 2] = NAN
    dataset(tmp_path, x, train=20, splits=2)
    with pytest.raises(RecipeError, match="'own' has missing values in column 1 .* 2 "):
        experiment(tmp_path)
    with pytest.raises(RecipeError, match="'own' has missing values in column 1 .* 2 "):
        experiment(tmp_path, features={"scale": "standard"})
    run = experiment(tmp_path, features={"scale": "standard", "missing": "indicator"})
    assert run.constructor_arguments()["in_dim"] == 5
    assert not torch.equal(run.loader(0).whole.x, run.loader(1).whole.x), "fitted per split"
    record, computed = run.run(0)
    assert (record.run.status, computed) == ("ok", True)


def test_categories_are_not_prepared(tmp_path):
    np.savez(tmp_path / "a.npz", x=np.arange(8)[:, None] % 3, edge_index=np.array([[0], [1]]), y=np.arange(8) % 2)
    pack_source(tmp_path / "a.npz", tmp_path / "packed/own", name="own", split=(0.5, 0.25, 0.25))
    with pytest.raises(RecipeError, match="'own' are categories"):
        experiment(tmp_path, features={"scale": "standard"})


def test_targets_of_edges_fit_on_all_nodes(tmp_path):
    x = np.random.default_rng(0).normal(5, 3, (12, 2)).astype(np.float32)
    edges = np.stack([np.arange(12), (np.arange(12) + 1) % 12])
    np.savez(tmp_path / "ring.npz", x=x, edge_index=edges[:, :11], y=np.arange(11) % 2)
    packed = pack_source(tmp_path / "ring.npz", tmp_path / "packed", "edge-classification")
    wide = x.astype(np.float64)
    found = features(packed, scale="standard")
    np.testing.assert_allclose(found, (wide - wide.mean(0)) / wide.std(0), rtol=1e-5, atol=1e-6)
