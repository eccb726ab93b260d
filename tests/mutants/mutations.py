"""Small mistakes in code that decides numbers, each with a cell whose golden values must detect it.

gt_bench/experiment/golden_values.py compares golden values.

Mistakes in dataset families have a dataset instead, whose values in tests/gt_bench/data/families.json must differ.
`old` occurs exactly once in `file`. After a change of that line, write the same mistake for the new line.
Cells are the cheapest that run the line, and their run differs in more than rounding.
"""

from dataclasses import dataclass

MODELS = "models"
RELEASED = "released forms"
LAYERS = "layers"
ENCODINGS = "encodings"
TASKS = "tasks"
TRAINER = "trainer"
BATCHING = "batching"
DATASETS = "datasets"


@dataclass(frozen=True)
class Mutation:
    """Replaces `old` by `new` in `file`; the golden values of `cell`, or of a dataset, must differ."""

    group: str
    file: str
    old: str
    new: str
    cell: str


PPGT = "gt_models/ppgt/__init__.py"
TOKENGT = "gt_models/tokengt.py"
EDGE_TRANSFORMER = "gt_models/edge_transformer.py"
POLYNORMER = "gt_models/polynormer/__init__.py"
BASELINES = "gt_models/baselines"
PPGT_RELEASED = "gt_models/released/ppgt.py"
POLYNORMER_RELEASED = "gt_models/released/polynormer.py"
KERNELS = "gt_models/kernels"
NN = "gt_models/layers"
LAPLACIAN = "gt_models/encodings/laplacian.py"
LOOP = "gt_bench/training/trainer.py"
OPTIMISATION = "gt_bench/training/optim.py"
LOADER = "gt_bench/training/loader.py"
TARGETS = "gt_bench/training/target_scaling.py"
BATCH = "gt_models/batch.py"
EDGES = "gt_bench/tasks/edges.py"
LINKS = "gt_bench/tasks/link_prediction.py"
SAMPLING = "gt_bench/training/neighbor_sampling.py"
PREPARATION = "gt_bench/training/feature_preparation.py"
PROCESSES = "gt_bench/training/ddp.py"
FAMILY = "gt_bench/data/families"
READERS = "gt_bench/data/readers.py"

MEAN_OF_BATCHES = (
    "batches = [self.task.evaluate([o], [t]) for o, t in zip(outputs, targets)]; "
    "scores = {name: sum(batch[name] for batch in batches) / len(batches) for name in batches[0]}"
)
MUTATIONS = [
    # attention scaled by the width of all heads
    Mutation(MODELS, PPGT, "(dim // num_heads) ** 0.5", "dim**0.5", "ppgt/zinc/ppgt-as-printed"),
    Mutation(MODELS, PPGT, "self.key_scale = -0.5 / root", "self.key_scale = -1.0 / root", "ppgt/zinc/ppgt-as-printed"),
    # attention scaled a little differently, at the start of a warm-up
    Mutation(
        MODELS, PPGT, "self.scale = 1.0 / root if", "self.scale = 1.05 / root if", "ppgt/zinc/ppgt-as-printed",
    ),
    Mutation(
        MODELS, PPGT, "self.key_scale = -0.5 / root", "self.key_scale = -0.55 / root", "embedded/ring-molecules/ppgt",
    ),
    # initial scale
    Mutation(
        MODELS, TOKENGT, "nn.init.normal_(module.weight, std=0.02)", "nn.init.normal_(module.weight, std=0.03)",
        "embedded/chains/tokengt",
    ),
    # without the last norm
    Mutation(MODELS, TOKENGT, "return self.final_norm(z)", "return z", "embedded/chains/tokengt"),
    # without a residual connection
    Mutation(
        MODELS, EDGE_TRANSFORMER, "x = x + self.dropout(self.attention(self.norm(x), batch))  # [P, d]\n        update",
        "x = self.dropout(self.attention(self.norm(x), batch))  # [P, d]\n        update",
        "edge-transformer/cornell/edge-transformer-as-printed",
    ),
    # one of two sums missing
    Mutation(
        MODELS, EDGE_TRANSFORMER, "(self.first(rows) + self.second(columns))", "self.first(rows)",
        "edge-transformer/csl/edge-transformer",
    ),
    # the last local layer instead of the sum over layers
    Mutation(MODELS, POLYNORMER, "x = x if total is None else total", "x = x", "embedded/torus-colours/polynormer"),
    # a mean instead of a sum
    Mutation(
        MODELS, "gt_models/hot/equivariant_linear.py", "            if self.normalize:",
        "            if not self.normalize:", "hot/pcqm4m-lsc/hot-sparse-kernel-small",
    ),
    Mutation(MODELS, f"{BASELINES}/gprgnn.py", "self.alpha * power for power", "power for power",
             "polynormer/computer/appnp"),
    Mutation(
        MODELS, f"{BASELINES}/difformer.py", "self.alpha * update + (1 - self.alpha) * x", "update",
        "polynormer/computer/difformer",
    ),
    # attention divided by the width of a head instead of its square root
    Mutation(MODELS, f"{BASELINES}/sat.py", "q.size(3) ** 0.5", "q.size(3)", "ppgt/zinc/sat"),
    Mutation(
        MODELS, f"{BASELINES}/graphormer.py", "(hidden_dim // num_heads) ** -0.5", "hidden_dim**-0.5",
        "tokengt/pcqm4mv2/graphormer",
    ),
    # incoming edges instead of outgoing ones
    Mutation(
        MODELS, f"{BASELINES}/grit.py", "index_add(0, batch.edge_index[0], ones)",
        "index_add(0, batch.edge_index[1], ones)", "ppgt/mnist/grit",
    ),
    # normalised over the wrong axis
    Mutation(MODELS, f"{BASELINES}/siam.py", "F.normalize(u, dim=1)", "F.normalize(u, dim=0)", "hot/jets/siam"),
    Mutation(
        MODELS, f"{BASELINES}/gin.py", "nn.Linear(hidden_dim, hidden_dim), norm, nn.ReLU()",
        "nn.Linear(hidden_dim, hidden_dim), norm, nn.GELU()", "embedded/ring-molecules/gin",
    ),
    # without a norm
    Mutation(
        RELEASED, POLYNORMER_RELEASED, "x = x if self.between_norm is None else self.between_norm(x)", "x = x",
        "embedded/torus-colours/polynormer",
    ),
    # the head of the global phase in the local phase
    Mutation(
        RELEASED, POLYNORMER_RELEASED, 'self.phase == "local" and', 'self.phase == "none" and',
        "embedded/torus-colours/polynormer",
    ),
    Mutation(
        RELEASED, "gt_models/released/edge_transformer.py",
        "x = self.attention_norm(x + self.dropout(self.attention(self.norm(x), batch)))",
        "x = x + self.dropout(self.attention(self.norm(x), batch))", "edge-transformer/csl/edge-transformer",
    ),
    # the mark of the diagonal
    Mutation(
        RELEASED, "gt_models/released/edge_transformer_brec.py", "masked_fill(diagonal[:, None], 2.0)",
        "masked_fill(diagonal[:, None], 1.0)", "edge-transformer/sr25/edge-transformer-brec",
    ),
    # the gate of the paper instead of the released one
    Mutation(RELEASED, PPGT_RELEASED, "*(1 + t for t in phi)", "*phi", "ppgt/csl/ppgt"),
    Mutation(RELEASED, PPGT_RELEASED, "    scale_queries = False", "    scale_queries = True", "ppgt/zinc/ppgt"),
    # the predicted node is not marked
    Mutation(
        RELEASED, "gt_models/released/ppgt_node2subgraph.py",
        'return x + batch.encoding("target", 1).to(x.dtype) * self.target_vector', "return x",
        "ppgt/ogbn-arxiv/ppgt-k1",
    ),
    Mutation(
        RELEASED, "gt_models/released/tokengt.py", "self.norm(F.gelu(self.transform(x)))",
        "self.norm(F.relu(self.transform(x)))", "ppgt/pcqm4mv2/tokengt-lap",
    ),
    # a sum instead of a mean
    Mutation(
        RELEASED, "gt_models/released/hot.py", "normalize = True", "normalize = False",
        "hot/pcqm4m-lsc/hot-sparse-kernel-small",
    ),
    # the gate added instead of multiplied
    Mutation(
        MODELS, PPGT, "weights = gate[0] * weights", "weights = gate[0] + weights", "embedded/ring-molecules/ppgt",
    ),
    # attention without its scale
    Mutation(
        LAYERS, "gt_models/layers/softmax_attention.py", "scores = (q / math.sqrt(q.size(-1))) @ k", "scores = q @ k",
        "embedded/chains/tokengt",
    ),
    # softmax over queries
    Mutation(
        MODELS, EDGE_TRANSFORMER, "/ 4).softmax(2)", "/ 4).softmax(1)",
        "edge-transformer/csl/edge-transformer",
    ),
    # weights of attention that do not sum to one
    Mutation(
        LAYERS, f"{NN}/edge_softmax.py",
        "return weight / weight.new_zeros(size).index_add(0, target, weight)[target]", "return weight / 2",
        "embedded/torus-colours/polynormer",
    ),
    Mutation(
        MODELS, POLYNORMER, "self.norm(h * a) + b * a", "self.norm(h * a) + a", "embedded/torus-colours/polynormer",
    ),
    Mutation(
        MODELS, "gt_models/ppgt/norms.py", "rms(x, self.eps) * rms(self.alpha * x + self.beta, self.eps)",
        "rms(x, self.eps)",
        "embedded/ring-molecules/ppgt",
    ),
    # edges without their weights
    Mutation(
        LAYERS, f"{KERNELS}/neighbour_sum.py", "weight[:, None] * value[col.long()]", "value[col.long()]",
        "polynormer/computer/appnp",
    ),
    # a normalisation constant
    Mutation(
        LAYERS, f"{NN}/gcn_sum.py", "scale[edges.target] * scale[edges.csr[1]]", "scale[edges.target] ** 2",
        "polynormer/computer/appnp",
    ),
    Mutation(LAYERS, f"{NN}/performer.py", "(0.5 * c * c)", "(0.5 * c)", "tokengt/chameleon/tokengt-lap-performer"),
    # a mean instead of a sum
    Mutation(LAYERS, f"{NN}/pooling.py", 'if how == "mean":', 'if how == "sum":', "embedded/ring-molecules/gin"),
    # without a residual connection
    Mutation(
        LAYERS, f"{NN}/transformer.py", "return x + self.drop_path(self.feed_forward(x), graph, packing.num_graphs)",
        "return self.feed_forward(x)", "embedded/chains/tokengt",
    ),
    # dropout not applied
    Mutation(
        LAYERS, f"{NN}/dropout.py", "return self.drop(x) if self.active_rate else x", "return x",
        "embedded/torus-colours/polynormer",
    ),
    # branches that stochastic depth keeps are not scaled
    Mutation(
        LAYERS, f"{NN}/drop_path.py", ".to(branch.dtype) / (1.0 - self.rate)", ".to(branch.dtype)", "ppgt/zinc/ppgt",
    ),
    # a sum instead of a mean for the features of self-loops
    Mutation(
        LAYERS, f"{NN}/self_loops.py", 'features, "mean", len(x))', 'features, "add", len(x))', "tokengt/pcqm4mv2/gat",
    ),
    Mutation(
        LAYERS, f"{NN}/equivariant_basis.py", "basis / total.clamp(min=1)", "basis",
        "embedded/basis-small/tokengt-attention",
    ),
    # self-loops count twice
    Mutation(
        LAYERS, f"{NN}/gnn.py", "torch.cat([(~is_loop).to(dtype),", "torch.cat([torch.ones_like(is_loop, dtype=dtype),",
        "edge-transformer/cornell/gcn",
    ),
    # degrees of a directed graph against its edges
    Mutation(
        LAYERS, f"{NN}/gnn.py", "index_add(0, target, weight)", "index_add(0, source, weight)",
        "edge-transformer/cornell/gcn",
    ),
    # one hop too many
    Mutation(
        LAYERS, f"{NN}/subgraphs.py", "for _ in range(num_hops):", "for _ in range(num_hops + 1):",
        "ppgt/ogbn-arxiv/ppgt-k1",
    ),
    # sign of an encoding
    Mutation(
        ENCODINGS, LAPLACIAN, "unsqueeze(1)).sign()", "unsqueeze(1)).sign().neg()", "edge-transformer/cornell/gcn",
    ),
    Mutation(ENCODINGS, LAPLACIAN, "degree.clamp(min=1).rsqrt()", "(degree + 1).rsqrt()", "embedded/chains/tokengt"),
    # a directed graph is not made undirected
    Mutation(
        ENCODINGS, LAPLACIAN, "adjacency = torch.maximum(adjacency, adjacency.mT)\n    degree", "degree",
        "edge-transformer/cornell/gcn",
    ),
    Mutation(
        ENCODINGS, "gt_models/encodings/random_walk.py", 'elif edges == "both-ways":', "elif False:", "ppgt/mnist/ppgt",
    ),
    # isolated nodes belong to the eigenvalue 0
    Mutation(
        ENCODINGS, LAPLACIAN, "return torch.eye(adjacency.size(1), dtype=adjacency.dtype) -",
        "return torch.diag_embed((degree > 0).to(adjacency.dtype)) -", "polynormer/photo/polynormer-v2",
    ),
    # without the trivial eigenvector
    Mutation(
        ENCODINGS, LAPLACIAN, 'arrays["laplacian_eigenvectors"][:, 1:]', 'arrays["laplacian_eigenvectors"][:, :1]',
        "polynormer/computer/polynormer-v2",
    ),
    # a random walk whose rows do not sum to one
    Mutation(
        ENCODINGS, "gt_models/encodings/random_walk.py", "torch.from_numpy(1 / scale)", "torch.from_numpy(scale**-0.5)",
        "embedded/ring-molecules/ppgt",
    ),
    # powers in descending order
    Mutation(
        ENCODINGS, "gt_models/encodings/random_walk.py", "values.diagonal(dim1=1, dim2=3).mT",
        "values.diagonal(dim1=1, dim2=3).mT.flip(2)", "ppgt/zinc/sat",
    ),
    # one step less than requested
    Mutation(
        ENCODINGS, f"{KERNELS}/walk_powers.py", "out[:, channel + int(identity) + k] = power",
        "out[:, channel + int(identity) + k] = power * (k > 0)", "embedded/ring-molecules/ppgt",
    ),
    Mutation(
        ENCODINGS, "gt_models/encodings/shortest_path.py", "distance.clamp(max=max_distance)",
        "(distance + 1).clamp(max=max_distance)", "tokengt/pcqm4mv2/graphormer",
    ),
    Mutation(
        ENCODINGS, "gt_models/encodings/hops.py", "scale[target] * scale[source]", "scale[target] ** 2",
        "polynormer/computer/nagphormer",
    ),
    # another random graph
    Mutation(
        ENCODINGS, "gt_models/encodings/expander.py", "rng, enough = np.random.default_rng(seed)",
        "rng, enough = np.random.default_rng(seed[0] + 1)", "polynormer/computer/exphormer",
    ),
    # the first columns instead of the last
    Mutation(ENCODINGS, "gt_models/encodings/columns.py", "[:, width - count :]", "[:, :count]", "ppgt/mnist/ppgt"),
    # another metric under this name
    Mutation(
        TASKS, "gt_bench/tasks/metrics.py", "(output.argmax(-1) == target.view(-1))",
        "(output.argmin(-1) == target.view(-1))", "embedded/chains/mlp",
    ),
    Mutation(
        TASKS, "gt_bench/tasks/metrics.py", "target.view_as(output).double()).abs().mean()",
        "target.view_as(output).double()).abs().median()", "embedded/ring-molecules/gcn",
    ),
    # the metric of the first label for all labels
    Mutation(
        TASKS, "gt_bench/tasks/metrics.py", "outputs[known, column]))", "outputs[known, 0]))",
        "ppgt/peptides-func/ppgt",
    ),
    # the log-odds of the other class
    Mutation(
        TASKS, "gt_bench/tasks/metrics.py", "(logits[:, 1] - logits[:, 0])", "(logits[:, 0] - logits[:, 1])",
        "polynormer/minesweeper/polynormer",
    ),
    # classes weighted by their frequency
    Mutation(
        TASKS, "gt_bench/tasks/base.py", "weight = (target.numel() - count)", "weight = count", "ppgt/pattern/gatedgcn",
    ),
    Mutation(
        TASKS, "gt_bench/tasks/base.py", "F.l1_loss(output", "F.smooth_l1_loss(output", "embedded/ring-molecules/gcn",
    ),
    Mutation(
        TASKS, "gt_bench/tasks/set_to_graph.py", "(2 * both / either).sum()", "(2 * both / either).mean()",
        "hot/jets/siam",
    ),
    Mutation(
        TASKS, "gt_bench/tasks/set_to_graph.py", "(output + output[target.transposed]) / 2", "output",
        "hot/delaunay-50/siam",
    ),
    # weight of a loss
    Mutation(
        TASKS, "gt_bench/tasks/hyperedge_prediction.py", "RECONSTRUCTION = 0.01", "RECONSTRUCTION = 0.1",
        "hot/gps/hyper-sagnn-e",
    ),
    Mutation(TASKS, "gt_bench/tasks/hyperedge_prediction.py", "ONE_NODE = 0.9", "ONE_NODE = 0.5", "hot/gps/s2g-plus"),
    Mutation(TASKS, "gt_bench/tasks/brec.py", "margin=margin)", "margin=margin + 0.1)", "ppgt/brec/gin"),
    Mutation(
        TASKS, "gt_bench/tasks/isomorphism.py", "parameter.size(-1) ** -0.5", "parameter.size(0) ** -0.5",
        "ppgt/sr25/gin",
    ),
    # edges of validation and test in the graph that the model sees
    Mutation(
        TASKS, LINKS, "seen = (link < 0) | ~self.is_held[link.clamp(min=0)]", "seen = link < len(self.is_held)",
        "embedded/golden-links/gcn",
    ),
    # negatives of training that cannot be edges of validation and test
    Mutation(TASKS, LINKS, "self.links[~self.is_held.numpy()], self.ptr", "self.links, self.ptr",
             "embedded/golden-links/gcn"),
    # an edge among negatives of another edge
    Mutation(TASKS, LINKS, "1.0 + (others > first).sum(1)", "1.0 + (others < first).sum(1)",
             "embedded/golden-links/gcn"),
    # edges without their features
    Mutation(
        TASKS, EDGES, 'attributes[self.packed.array("target_edge")[ids].long()]', "0 * attributes[ids]",
        "embedded/golden-edge-classes/gcn",
    ),
    # edges in the order of the file
    Mutation(TASKS, EDGES, "self._steps(ids[order])", "self._steps(ids)", "embedded/golden-edge-classes/gcn"),
    # an edge without direction in one order of its nodes
    Mutation(TASKS, "gt_models/layers/edge_head.py", "if self.symmetric:", "if False:",
             "embedded/golden-edge-numbers/gcn"),
    Mutation(
        TASKS, "gt_models/layers/edge_head.py", "return self.mlp(torch.cat([source * target, *features], -1))",
        "return self.mlp(torch.cat([source + target, *features], -1))", "embedded/golden-links/gcn",
    ),
    # a squared error, for numbers of nodes
    Mutation(
        TASKS, "gt_bench/tasks/metrics.py", "(output.double() - target.view_as(output).double()).abs().mean()",
        "(output.double() - target.view_as(output).double()).square().mean()", "embedded/golden-node-numbers/sage",
    ),
    # runtimes in rising order
    Mutation(
        TASKS, "gt_bench/tasks/configuration_ranking.py", "argsort(descending=True, stable=True)",
        "argsort(stable=True)",
        "polynormer/tpugraphs-layout-tile/polynormer",
    ),
    # without weight decay
    Mutation(TRAINER, OPTIMISATION, "weight_decay=section.weight_decay,", "", "ppgt/csl/ppgt"),
    Mutation(
        TRAINER, OPTIMISATION, 'if section.name == "adamw" else torch.optim.Adam',
        'if section.name == "adam" else torch.optim.Adam', "ppgt/csl/ppgt",
    ),
    # a warm-up that begins one step later
    Mutation(
        TRAINER, OPTIMISATION, "position / section.warmup)", "(position + 1) / section.warmup)",
        "embedded/ring-molecules/ppgt",
    ),
    Mutation(
        TRAINER, OPTIMISATION, "(section.total or total) - section.warmup)", "(section.total or total))",
        "embedded/ring-molecules/ppgt",
    ),
    Mutation(
        TRAINER, OPTIMISATION, "return section.final_factor + (1 - section.final_factor) * shape", "return shape",
        "hot/pcqm4m-lsc/mlp-pi-100k",
    ),
    # the schedule one step ahead
    Mutation(
        TRAINER, LOOP, 'if schedule.unit == "step" else self.epoch\n',
        'if schedule.unit == "step" else self.epoch + 1\n', "embedded/ring-molecules/gin",
    ),
    Mutation(
        TRAINER, LOOP, "position = self.epoch * steps + step if", "position = self.epoch * steps + step + 1 if",
        "hot/pcqm4m-lsc/mlp-pi-100k",
    ),
    # gradients not clipped
    Mutation(TRAINER, LOOP, "if section.clip_norm is not None:", "if False:", "embedded/ring-molecules/ppgt"),
    # gradients accumulated
    Mutation(TRAINER, LOOP, "self.optimizer.zero_grad(set_to_none=True)", "pass", "embedded/chains/mlp"),
    # a part of the parameters frozen
    Mutation(
        TRAINER, LOOP, "self.recipe.optimizer, self.model.parameters())",
        "self.recipe.optimizer, list(self.model.parameters())[1:])", "embedded/chains/mlp",
    ),
    # the last epoch instead of the best
    Mutation(TRAINER, LOOP, 'self.recipe.select == "last" or', "True or", "polynormer/questions/polynormer"),
    # the last of several equal epochs
    Mutation(TRAINER, LOOP, "(value > best if", "(value >= best if", "embedded/torus-colours/polynormer"),
    # dropout in evaluation
    Mutation(TRAINER, LOOP, "self.model.eval()", "self.model.train()", "embedded/torus-colours/polynormer"),
    # the wrong part of the split
    Mutation(
        TRAINER, LOOP, 'scores = self._evaluate(self.selects_on)', 'scores = self._evaluate("train")',
        "embedded/chains/mlp",
    ),
    Mutation(
        TRAINER, LOOP, 'self._evaluate("test", final=True)', 'self._evaluate("val", final=True)', "embedded/chains/mlp",
    ),
    # the last weights are tested
    Mutation(
        TRAINER, LOOP, 'def _test(self) -> None:\n        self.model.load_state_dict(self.best["model"])',
        "def _test(self) -> None:", "polynormer/questions/polynormer",
    ),
    # a phase skipped
    Mutation(TRAINER, LOOP, "if self.epoch < end)", "if self.epoch <= end)", "embedded/torus-colours/polynormer"),
    # the best weights of the first phase are not loaded
    Mutation(TRAINER, LOOP, "if phase.reload_best and self.best and", "if False and", "polynormer/tolokers/polynormer"),
    # the optimiser's state of the best epoch is not loaded
    Mutation(
        TRAINER, LOOP, 'restore_optimizer(self.optimizer, self.best["optimizer"])', "pass",
        "polynormer/tolokers/polynormer",
    ),
    Mutation(
        TRAINER, LOOP, "self.epoch - best >= self.recipe.patience", "self.epoch - best > self.recipe.patience",
        "hot/jets/siam",
    ),
    Mutation(
        TRAINER, LOOP, "self.epoch >= (self.recipe.eval_after or 0)", "self.epoch > (self.recipe.eval_after or 0)",
        "polynormer/pokec/polynormer",
    ),
    # a mean of batches instead of the metric of all of them, for regression and classification
    Mutation(TRAINER, LOOP, "scores = self.task.evaluate(list(outputs), list(targets))", MEAN_OF_BATCHES,
             "embedded/ring-molecules/gcn"),
    Mutation(
        TRAINER, LOOP, "scores = self.task.evaluate(list(outputs), list(targets))", f"{MEAN_OF_BATCHES}  # classes",
        "ppgt/cifar10/gatedgcn",
    ),
    # the requested precision ignored
    Mutation(TRAINER, LOOP, 'enabled=self.recipe.precision == "bf16"', "enabled=False", "ppgt/zinc/graphormer"),
    # state that a resumed run loses
    Mutation(
        TRAINER, LOOP, 'restore_optimizer(self.optimizer, groups["optimizer"])', "pass", "embedded/chains/gcn",
    ),
    Mutation(TRAINER, LOOP, 'self.model.load_state_dict(groups["model"])', "pass", "embedded/torus-colours/mlp"),
    # every seed on the first split
    Mutation(
        TRAINER, "gt_bench/config/recipe.py", 'index = seed % num_splits if self.split == "seed"',
        'index = 0 if self.split == "seed"', "embedded/torus-colours/mlp",
    ),
    Mutation(
        TRAINER, "gt_bench/experiment/setup.py", "recipe, task, split = self.recipe, self.task, self.split_of(seed)",
        "recipe, task, split = self.recipe, self.task, 0", "embedded/golden-links/gcn",
    ),
    # gradients of one process, and batch normalisation over its rows
    Mutation(
        TRAINER, PROCESSES, "return grad[ctx.rows] * ctx.world, None", "return grad[ctx.rows], None",
        "embedded/chains/gcn-processes",
    ),
    Mutation(
        TRAINER, PROCESSES, "variance = _Sum.apply(centred.square().sum(dims) * share.counted, share) / count",
        "variance = centred.square().sum(dims) * share.world / count", "embedded/chains/gcn-processes",
    ),
    # batches weighted alike
    Mutation(TRAINER, LOOP, "rows_seen.append(len(target))", "rows_seen.append(1)", "polynormer/computer/nagphormer"),
    Mutation(
        TRAINER, "gt_bench/training/pretrained_init.py",
        "model.load_state_dict({name: source[name] for name in common}, strict=False)", "pass",
        "tokengt/pcqm4mv2/tokengt-lap-performer",
    ),
    # batches in stored order
    Mutation(
        BATCHING, LOADER, 'self._plan(self.ids["train"], self._generator(epoch), join_last=self._joins)',
        'self._plan(self.ids["train"], join_last=self._joins)', "embedded/chains/mlp",
    ),
    # the same order in every epoch
    Mutation(
        BATCHING, LOADER, 'seed_of("batches", self.seed, epoch)', 'seed_of("batches", self.seed)',
        "embedded/chains/mlp",
    ),
    # an epoch with one step less
    Mutation(
        BATCHING, LOADER, 'return len(self._plan(self.ids["train"], join_last=self._joins))', "return 1",
        "hot/pcqm4m-lsc/mlp-pi-100k",
    ),
    # the nodes of a part train with the targets of others
    Mutation(
        BATCHING, LOADER, "None if batch.y is None else batch.y[nodes]",
        "None if batch.y is None else batch.y[: len(nodes)]", "polynormer/pokec/nodeformer",
    ),
    Mutation(
        BATCHING, LOADER, "kept = (edges >= 0).all(0)", "kept = (edges >= 0).all(0) & (edges[0] < edges[1])",
        "polynormer/pokec/nodeformer",
    ),
    Mutation(BATCHING, "gt_bench/training/subgraph_loader.py", "self._steps(ids[order])", "self._steps(ids)",
             "ppgt/ogbn-arxiv/ppgt-k1"),
    Mutation(
        BATCHING, "gt_bench/training/subgraph_loader.py", "subgraphs.hops, subgraphs.max_nodes",
        "subgraphs.hops - 1, subgraphs.max_nodes", "ppgt/ogbn-arxiv/ppgt-k1",
    ),
    # the last smaller batch dropped
    Mutation(
        BATCHING, LOADER, "batches = list(order.split(batch_size)) if count else []",
        "batches = [batch for batch in order.split(batch_size) if len(batch) == batch_size] or [order]",
        "embedded/ring-molecules/gin",
    ),
    # a last batch of one graph alone
    Mutation(
        BATCHING, LOADER, "if len(batches) > 1 and len(batches[-1]) == 1 < len(batches[-2]):", "if False:",
        "embedded/chains/gcn-processes",
    ),
    # sampled neighbourhoods: one neighbour more, nodes in stored order, the same draws in every epoch
    Mutation(BATCHING, SAMPLING, "order[rank < limit]", "order[rank <= limit]", "embedded/golden-node-numbers/sage"),
    Mutation(
        BATCHING, LOADER, 'order = self.rows("train")[torch.randperm(len(self.ids["train"]), generator=rng)]',
        'order = self.rows("train")', "embedded/golden-node-numbers/sage",
    ),
    Mutation(
        BATCHING, LOADER, 'seed_of("neighbors", self.seed, epoch)', 'seed_of("neighbors", self.seed)',
        "embedded/golden-node-numbers/sage",
    ),
    # features scaled by the statistics of all nodes, and gaps filled with 1
    Mutation(BATCHING, PREPARATION, "rows = np.zeros(len(x), bool)", "rows = np.ones(len(x), bool)",
             "embedded/golden-node-numbers/sage"),
    Mutation(
        BATCHING, PREPARATION, "return np.where(np.isnan(x), mean, x)", "return np.where(np.isnan(x), 1.0, x)",
        "embedded/golden-node-numbers/sage",
    ),
    # statistics of the targets
    Mutation(
        BATCHING, TARGETS, "y.nansum(0) / count", "y.nansum(0) / (count - 1)",
        "edge-transformer/qm9/edge-transformer-as-released",
    ),
    Mutation(
        BATCHING, TARGETS, "nansum(0) / (count - 1)", "nansum(0) / count",
        "edge-transformer/qm9/edge-transformer-as-released",
    ),
    Mutation(
        BATCHING, TARGETS, 'split) if statistics == "train"', 'split) if statistics == "all"',
        "edge-transformer/qm9/edge-transformer-as-released",
    ),
    # the second node of a pair first
    Mutation(
        BATCHING,
        BATCH,
        "self.first_pairs[first] + self.local[second]",
        "self.first_pairs[second] + self.local[first]",
        "ppgt/zinc/ppgt",
    ),
    # a degree that counts the node itself
    Mutation(
        BATCHING, BATCH, "index_add(0, self.edge_index[0], ones)", "index_add(0, self.edge_index[0], ones) + 1",
        "ppgt/zinc/ppgt-as-printed",
    ),
    Mutation(
        BATCHING, BATCH, "self.batch[source], self.local[source], self.local[target]",
        "self.batch[source], self.local[target], self.local[source]", "ppgt/zinc/sat",
    ),
    # edges reversed
    Mutation(DATASETS, f"{FAMILY}/webkb.py", "edge_index=edges.T,", "edge_index=edges[:, ::-1].T,", "cornell"),
    # rows in the order of the file
    Mutation(
        DATASETS, f"{FAMILY}/webkb.py", "order = np.argsort(np.array([int(row[0]) for row in rows]))",
        "order = np.arange(len(rows))", "cornell",
    ),
    # edges in one direction only
    Mutation(
        DATASETS, f"{FAMILY}/heterophilous.py", 'both_directions(data["edges"].T, nodes)', 'data["edges"].T',
        "minesweeper",
    ),
    Mutation(DATASETS, f"{FAMILY}/ogb_nodes.py", 'if a["both_directions"]:', "if False:", "ogbn-arxiv-undirected"),
    # self-loops not removed
    Mutation(DATASETS, READERS, "edges = edges[:, edges[0] != edges[1]]", "pass", "chameleon"),
    # validation and test exchanged
    Mutation(DATASETS, READERS, "enumerate((train, val, test), 1)", "enumerate((train, test, val), 1)", "computer"),
    # other nodes of each class
    Mutation(DATASETS, READERS, "rng = np.random.default_rng(seed)", "rng = np.random.default_rng(0)", "chameleon"),
    # early stopping without the stopping nodes
    Mutation(DATASETS, f"{FAMILY}/wikics.py", "val | stopping", "val", "wikics"),
    # both graphs of a pair in different folds
    Mutation(DATASETS, f"{FAMILY}/expressivity.py", "fold = np.repeat(", "fold = np.tile(", "exp"),
    # the leak of the released split
    Mutation(DATASETS, f"{FAMILY}/hyperedges.py", "np.where(in_train[which], 0, 3)", "3", "gps"),
    # a normalisation dropped
    Mutation(
        DATASETS, f"{FAMILY}/pyg_hosted.py", "((_array(data, name) - mean) / deviation)", "(_array(data, name) - mean)",
        "pascalvoc-sp",
    ),
    Mutation(DATASETS, f"{FAMILY}/shchur.py", ", row_normalise=True", "", "computer-tokengt"),
    Mutation(
        DATASETS, f"{FAMILY}/tpugraphs.py", 'runtime = runtime / data["config_runtime_normalizers"]', "pass",
        "tpugraphs-layout-tile",
    ),
    # counts instead of presence of words
    Mutation(
        DATASETS, f"{FAMILY}/shchur.py", "features.astype(bool).toarray().view(np.uint8)",
        "features.toarray().astype(np.uint8)", "computer",
    ),
    # targets scaled by statistics that include the test part
    Mutation(
        DATASETS, f"{FAMILY}/alchemy.py", "y[part == 1].mean(0), y[part == 1].std(0, ddof=1)",
        "y.mean(0), y.std(0, ddof=1)", "alchemy",
    ),
    # the wrong columns
    Mutation(
        DATASETS, f"{FAMILY}/pyg_hosted.py", '_array(data, "y").ravel()[:12]', '_array(data, "y").ravel()[-12:]', "qm9",
    ),
    Mutation(
        DATASETS, f"{FAMILY}/smiles.py", "for name in STRUCT_TARGETS]", "for name in sorted(STRUCT_TARGETS)]",
        "peptides-struct",
    ),
    # labels in the opposite order
    Mutation(
        DATASETS, f"{FAMILY}/wikipedia.py", 'labels = np.searchsorted(cuts, target, side="left")',
        "labels = CLASSES - 1 - np.searchsorted(cuts, target)", "chameleon",
    ),
    # labels shifted
    Mutation(
        DATASETS, f"{FAMILY}/pokec.py", 'data["label"].ravel()', 'np.roll(data["label"].ravel(), 1)', "pokec",
    ),
    # other validation molecules
    Mutation(DATASETS, f"{FAMILY}/smiles.py", "default_rng(42)", "default_rng(0)", "pcqm4mv2"),
    # jets of one track not removed
    Mutation(DATASETS, f"{FAMILY}/jets.py", "if len(tracks) > 1]", "if len(tracks) > 0]", "jets"),
]  # fmt: skip
