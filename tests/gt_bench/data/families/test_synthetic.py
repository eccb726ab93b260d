"""Generated datasets: the same bytes on every machine, and the expected structure."""

import torch

from tests.gt_bench.data.checks import prepared

# sha256 of data.safetensors; a change alters every result on these datasets
PINNED = {
    "chains": "c7386228c178fda540aececa16edad7a9449bef80b0aa6309aaf171d24b9f678",
    "sbm-cluster": "c02fc27b8eef88163214792cfbd92ae1f3b63a7db50ca7f3f62dec9db3e7c2ab",
}


def test_chains(tmp_path):
    dataset = prepared("chains", tmp_path, None)
    assert dataset.header.data_sha256 == PINNED["chains"]
    assert dataset.header.also == ["f1-micro", "f1-macro"]  # HOT, Table 1
    for part, length, count in (("train", 20, 200), ("val", 20, 40), ("test", 200, 40)):
        graphs = dataset.split(part, 0)
        assert graphs.numel() == count
        assert dataset.sizes[graphs].unique().tolist() == [length]
        batch = dataset.batch(graphs)
        x, y = batch.x.view(count, length), batch.y.view(count, length)
        assert (y == y[:, :1]).all()  # one class per chain
        assert torch.equal(x[:, 0] - 1, y[:, 0])  # shown by the first node
        assert not x[:, 1:].any()  # and by no other node
        assert y[:, 0].sum() * 2 == count
        steps = (batch.edge_index[0] - batch.edge_index[1]).abs()
        assert (steps == 1).all()
        assert batch.num_edges == count * 2 * (length - 1)


def test_sbm_cluster_has_the_published_parameters(tmp_path):
    dataset = prepared("sbm-cluster", tmp_path, None)
    assert dataset.header.data_sha256 == PINNED["sbm-cluster"]
    batch = dataset.batch(torch.arange(dataset.num_graphs))
    sizes = torch.bincount(batch.batch * 6 + batch.y, minlength=6 * dataset.num_graphs)
    assert 5 <= int(sizes.min()) <= int(sizes.max()) <= 34
    marked = batch.x[:, 0] > 0
    assert (batch.x[marked, 0] - 1 == batch.y[marked]).all()
    assert (torch.bincount(batch.batch[marked]) == 6).all()
    source, target = batch.edge_index
    same = batch.y[source] == batch.y[target]
    within = (sizes * (sizes - 1)).sum()
    across = (batch.sizes**2).sum() - (sizes**2).sum()
    assert abs(same.sum() / within - 0.55) < 0.01
    assert abs((~same).sum() / across - 0.25) < 0.01
    # ids are independent of the class: nodes are in random order
    assert abs(torch.corrcoef(torch.stack([batch.local.float(), batch.y.float()]))[0, 1]) < 0.05
