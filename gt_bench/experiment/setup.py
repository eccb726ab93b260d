"""A recipe on a packed dataset: checks, digests, the model and its batches."""

import inspect
from collections.abc import Callable, Iterable
from dataclasses import dataclass, fields
from functools import cached_property
from pathlib import Path
from typing import cast

import torch
from torch import nn

from gt_bench.config.components import code_of, run_versions
from gt_bench.config.params import RunSettings
from gt_bench.config.recipe import Recipe
from gt_bench.config.schema import RecipeError
from gt_bench.data.custom.metric import metric_digest
from gt_bench.data.packed import SEEN, PackedDataset
from gt_bench.encodings.cache import EncodedDataset
from gt_bench.experiment.modified_code import modified_code
from gt_bench.experiment.validate import check_fit, check_metric, check_model, check_processes, check_static
from gt_bench.plugins.models import files_digest, is_own
from gt_bench.records.run import WEIGHTS, Digests
from gt_bench.runtime.environment import choose_device
from gt_bench.store.run_store import Store, run_digest
from gt_bench.store.weights import with_head
from gt_bench.tasks.edges import is_symmetric
from gt_bench.tasks.registry import create_task
from gt_bench.training import pretrained_init
from gt_bench.training.failures import failure, is_out_of_memory
from gt_bench.training.feature_preparation import prepared, prepared_header
from gt_bench.training.inductive_loader import InductiveLoader
from gt_bench.training.interfaces import Batches, Packed, SplitData
from gt_bench.training.loader import Loader
from gt_bench.training.subgraph_loader import SubgraphLoader
from gt_bench.training.target_scaling import StandardisedTargets
from gt_bench.utils.digest import digest_of
from gt_bench.utils.json_types import Settings
from gt_bench.utils.versions import modules_of_encodings
from gt_models.registry import create_model, model_info

DATA = Path("data")


@dataclass
class Setup:
    """One recipe on one packed dataset.

    Args:
        recipe: the hyperparameters, already checked by `load_recipe`.
        path: file of the recipe, named in error messages.
        dataset: name of the dataset.
        settings: run-wide settings (device, limits). They do not change any number.
        store: where records are stored and looked up.
        data: folder with packed/ and encodings/.
        allocator: setting of the memory allocator, see `prepare_process`. It is copied to the records.
        source: experiment of the cell that `start:` of the recipe names. A recipe with `start:` has no digest and
            cannot run without it.

    Raises:
        RecipeError: the recipe does not fit its model, its dataset or its number of processes.
        DatasetError: the packed dataset or its encodings are missing or damaged.
    """

    recipe: Recipe
    path: str
    dataset: str
    settings: RunSettings
    store: Store
    data: Path = DATA
    allocator: str = "system default"
    source: "Setup | None" = None

    def __post_init__(self) -> None:
        self.arguments = check_model(self.recipe, self.path)
        self.packed = PackedDataset.open(self.data / "packed" / self.dataset)
        self.header = self.packed.header
        check_fit(self.recipe, self.header.level, self.dataset, self.path)
        check_processes(self.recipe, self.header.task, self.header.split_kind, self.dataset, self.path)
        check_static(self.recipe, self.header.task, self.header.split_kind, self.dataset, self.path)
        try:
            prepared_header(self.header, self.recipe.features)
        except ValueError as error:
            raise RecipeError(str(error), file=self.path) from None
        if self.inductive and self.recipe.subgraphs:
            problem = f"{self.dataset!r} is inductive, which they do not support"
            raise RecipeError(problem, file=self.path, place="subgraphs", remedy="remove subgraphs")
        if self.inductive and "number" in self.recipe.encodings:
            raise RecipeError(
                f"{self.dataset!r} is inductive: a node has another number in the graphs of training, validation and "
                "test",
                file=self.path,
                place="encodings.number",
                remedy="use a model without weights of single nodes",
            )
        try:
            self.task = create_task(self.header.task, self.header.metric, self.recipe.loss, self.header.also)
        except KeyError as error:
            raise RecipeError(error.args[0], file=self.path, place=f"dataset {self.dataset!r}") from None
        if self.recipe.targets and self.task.custom:
            raise RecipeError(
                f"{self.recipe.targets} standardises the targets, but the metric {next(iter(self.task.custom))} of "
                f"{self.dataset!r} reads them in the unit of the data",
                file=self.path,
                place="targets",
                value=self.recipe.targets,
                remedy="remove targets (--set targets=null)",
            )
        # encodings of subgraphs are computed with each batch, those of the graph that a part sees by its loader
        computed = self.recipe.subgraphs or self.inductive or self.task.computes_encodings
        stored = {} if computed else self.recipe.encodings
        self.encoded = EncodedDataset(self.packed, self.data / "encodings" / self.dataset, stored)
        self.device = choose_device(self.settings.device)
        self.time_limit = self.settings.time_limit_hours and self.settings.time_limit_hours * 3600

    def __reduce__(self) -> tuple[object, ...]:
        """Pickles the arguments only: a new process opens the same files again."""
        return type(self), tuple(getattr(self, field.name) for field in fields(self))

    @cached_property
    def versions(self) -> dict[str, int]:
        """Declared version of each component that computes the runs: model, task, trainer and others."""
        model = self.recipe.model.name
        recipe = self.recipe.decisive() | ({"inductive": True} if self.inductive else {})
        return run_versions(None if is_own(model) else model, self.header.task, recipe)

    @cached_property
    def digests(self) -> Digests:
        """Digests of recipe, data, encodings and user-supplied files; see `gt_bench.records.run.Digests`."""
        recipe = self.recipe
        custom = [metric_digest(name) for name in self.task.custom]
        digests = {
            "recipe": digest_of(recipe.decisive()),
            "data": self.packed.digest,
            "encodings": self.encoded.digest,
            "files": files_digest(recipe.model.name),
            "metric": digest_of(custom) if custom else None,
            "last_batch": "joined" if self._joins_last() else None,
            "modified": self.modified,
        }
        return Digests.from_disk({name: digest for name, digest in digests.items() if digest})

    def _joins_last(self) -> bool:
        """Returns whether the last batch of an epoch can have one graph, which then joins the batch before it."""
        batch, task = self.recipe.batch, self.task
        if batch.last or task.loader or task.runner or not (batch.graphs or batch.nodes):
            return False
        if batch.nodes:  # the sizes of batches depend on the order of the epoch
            return True
        graphs = batch.graphs or 1
        sizes = {len(self.packed.split("train", split)) for split in range(self.header.num_splits)}
        return graphs > 1 and any(size > graphs and size % graphs == 1 for size in sizes)

    @cached_property
    def code(self) -> str:
        """Hash of the code that computes the runs. It is noted in records and is not part of any digest."""
        model = self.recipe.model.name
        return code_of(None if is_own(model) else model, self.header.task)

    @cached_property
    def modified(self) -> str | None:
        """Hash of the code if it computes other numbers than the golden values of its versions, otherwise None."""
        components = {*self.versions, *modules_of_encodings(self.recipe.encodings)}
        return modified_code(self.path, self.recipe.model.name, self.header.task, components, self.code)

    @property
    def predictions_mib(self) -> float:
        """MiB of outputs on validation and test that are stored with a record."""
        return self.settings.predictions if self.recipe.predictions is None else self.recipe.predictions

    @cached_property
    def _packed_or_sparse(self) -> Packed:
        """The dataset, with sparse node features if the model accepts them and batches do not cut the graph."""
        cut = self.recipe.subgraphs or self.recipe.batch.parts or self.recipe.batch.targets or self.inductive
        sparse = self.device.type == "cpu" and not cut and model_info(self.recipe.model.name).sparse_x
        return self.packed.with_sparse_x() if sparse else self.packed

    @property
    def inductive(self) -> bool:
        """Whether training sees neither validation nor test nodes."""
        return SEEN in self.header.extras

    def split_of(self, seed: int) -> int:
        """Returns the index of the split that a seed uses."""
        return self.recipe.split_of(seed, self.header.num_splits)

    def check_metric(self, seeds: Iterable[int]) -> None:
        """Checks that the metric is defined on the validation and test parts that these seeds use.

        Raises:
            RecipeError: it is undefined on one of them.
        """
        check_metric(self.packed, self.task, map(self.split_of, seeds), self.path)

    def decisive(self, seed: int) -> Settings:
        """Returns `Recipe.decisive`, in which `start:` names the digest of the run instead of its cell.

        Raises:
            RecipeError: the recipe has `start:`, and this experiment has no `source`.
        """
        content = self.recipe.decisive()
        if self.recipe.start:
            if self.source is None:
                cell, remedy = self.recipe.start.cell, "run the cell with `python -m stages.train`"
                problem = f"{cell} is not available here"
                raise RecipeError(problem, file=self.path, place="start", value=cell, remedy=remedy)
            content["start"] = {"load": self.recipe.start.load, "run": self.source.digest(seed)}
        return content

    def digest(self, seed: int, test: bool = True) -> str:
        """Returns the key of a run in the store: a sha256 of everything that decides its numbers.

        Args:
            seed: seed of the run.
            test: False for a trial of a search, which never reads the test split.
        """
        return run_digest(self.decisive(seed), seed, self.split_of(seed), self.digests, self.versions, test)

    def constructor_arguments(self) -> Settings:
        """Returns the arguments of the model's constructor: dimensions of the dataset, and `model:` of the recipe."""
        recipe, header = self.recipe, self.header
        given = {
            "in_dim": self.task.in_dim(prepared_header(header, recipe.features)),
            "out_dim": recipe.width_of(header.out_dim),
            "level": recipe.level_of(header.level),
        }
        if "edge_dim" in inspect.signature(model_info(recipe.model.name).cls).parameters:
            given["edge_dim"] = header.edge_dim
        return given | self.arguments

    def head_arguments(self) -> Settings | None:
        """Returns the arguments of the head (`gt_models.layers.edge_head.EdgeHead`) of a task of edges, else None."""
        header, head = self.header, self.recipe.head
        if head is None:
            return None
        # the features of a pair that is no edge do not exist
        edge_dim = None if header.task == "link-prediction" else header.edge_dim
        about = {"out_dim": header.out_dim, "edge_dim": edge_dim, "symmetric": is_symmetric(self.packed)}
        return head.model_dump() | about

    def build(self) -> nn.Module:
        """Returns a newly initialised model.

        Raises:
            RecipeError: the constructor rejects the recipe's values, a layer has width 0, or the model does not support
                the phases of the recipe.
        """
        recipe, path = self.recipe, self.path
        try:
            model = with_head(create_model(recipe.model.name, **self.constructor_arguments()), self.head_arguments())
        except (ValueError, RuntimeError, ZeroDivisionError) as error:  # torch raises the last two for a width below 0
            if is_out_of_memory(error):
                raise
            raise RecipeError(str(error), file=path, place="model") from error
        # torch_geometric infers a width of 0 from the first batch
        if unsized := [name for name, weight in model.named_parameters() if nn.parameter.is_lazy(weight)]:
            problem, remedy = f"{unsized[0]} has no size", "give each layer a width above 0"
            raise RecipeError(problem, file=path, place="model", remedy=remedy)
        if empty := [name for name, weight in model.named_parameters() if not weight.numel()]:
            zeros = ", ".join(f"{key}: {value}" for key, value in recipe.model.arguments.items() if value == 0)
            problem = f"{empty[0]} has no entries{zeros and f' (given: {zeros})'}"
            raise RecipeError(problem, file=path, place="model", remedy="give each layer a width above 0")
        for phase in recipe.phases:
            set_phase = getattr(model, "set_phase", None)
            if set_phase is None:
                problem = f"model {recipe.model.name!r} does not support phases"
                raise RecipeError(problem, file=path, place="phases", remedy="use epochs instead")
            try:
                set_phase(phase.name)
            except ValueError as error:
                raise RecipeError(str(error), file=path, place="phases") from error
        return model

    def initial_model(self, seed: int) -> Callable[[], nn.Module]:
        """Returns `build`, or if the recipe has `start:`, a function that also loads the weights of the source.

        Raises:
            RecipeError: the weights are not in the store.
        """
        start, source = self.recipe.start, self.source
        if start is None:
            return self.build
        assert source is not None  # without it `digest` raises before
        digest = source.digest(seed)
        record = self.store.get(digest)
        status, reason = (record.run.status, record.run.error) if record else (None, None)
        folder = self.store.folder(digest)
        has_weights = source.recipe.keep_weights and (folder / WEIGHTS).exists()
        if status is None or (status == "ok" and not has_weights):
            command = f"run `python -m stages.train {start.cell}`"
            raise RecipeError(
                f"the run with seed {seed} {'has no saved weights' if status else 'is not in the store'}",
                file=self.path,
                place=f"start: {start.cell}",
                value=seed,
                remedy=f"add seed {seed} and keep_weights: true to its recipe and {command}",
            )

        def build() -> nn.Module:
            if status != "ok":  # this run ends with the same status
                raise failure(status, f"the run that it starts from ({start.cell}, seed {seed}): {reason}")
            model = self.build()
            try:
                pretrained_init.load_weights(model, folder, start.load)
            except ValueError as error:
                raise RecipeError(str(error), file=self.path, place=f"start: {start.cell}") from None
            return model

        return build

    def loader(self, seed: int) -> Batches:
        """Returns the batches that a seed trains on and is evaluated on.

        Raises:
            ValueError: the recipe's `batch:`, `targets:` or `subgraphs:` does not fit the dataset.
        """
        recipe, task, split = self.recipe, self.task, self.split_of(seed)
        dtype = torch.float64 if recipe.precision == "float64" else torch.float32
        packed: Packed = prepared(self.packed, recipe.features, split)
        if recipe.targets:
            packed = StandardisedTargets(packed, recipe.targets, split)
        elif not recipe.features:
            packed = self._packed_or_sparse
        data = SplitData(packed, self.encoded, split, recipe.batch, seed, self.device, dtype)
        if self.inductive:
            return InductiveLoader(data, encodings=recipe.encodings)
        if recipe.subgraphs:
            subgraphs = SubgraphLoader(data, subgraphs=recipe.subgraphs, encodings=recipe.encodings)
            return cast(Batches, subgraphs)  # it has no method `on`: only whole graphs use another evaluation device
        if task.computes_encodings and task.loader:
            return task.loader(data, encodings=recipe.encodings)
        return (task.loader or Loader)(data)
