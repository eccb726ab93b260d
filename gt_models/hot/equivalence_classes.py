"""Equivalence classes of multi-indices as set partitions (Kim et al. 2021, Section 2).

A linear layer L_{k->l} has one weight per partition of its k input and l output positions. There are Bell(k + l)
classes.
"""

from dataclasses import dataclass
from functools import cache, cached_property
from itertools import combinations, permutations

Partition = tuple[tuple[int, ...], ...]


@cache
def set_partitions(n: int) -> tuple[Partition, ...]:
    """All Bell(n) partitions of {0, ..., n-1}, the coarsest first; blocks are in the order of their first element."""
    if n == 0:
        return ((),)
    found = []
    for smaller in set_partitions(n - 1):
        for b in range(len(smaller)):  # n-1 joins block b
            found.append((*smaller[:b], (*smaller[b], n - 1), *smaller[b + 1 :]))
        found.append((*smaller, (n - 1,)))
    return tuple(sorted(found, key=lambda p: (len(p), p)))


def distinct(order: int) -> Partition:
    """The pattern of tuples whose entries all differ."""
    return tuple((i,) for i in range(order))


@dataclass(frozen=True)
class EquivalenceClass:
    """One class mu of pairs (i, j), i in [n]^k and j in [n]^l, that have the same equality pattern.

    Attributes:
        k, l: input and output order.
        blocks: partition of the positions 0..k-1 (input) and k..k+l-1 (output); positions in one block hold the same
            node.
    """

    k: int
    l: int
    blocks: Partition

    def __post_init__(self) -> None:
        # computed here: torch.compile cannot trace the lock of functools.cached_property (Python 3.11) at first use
        self.input_pattern, self.output_pattern, self.shared, self.free, self.coarser, self._hash  # noqa: B018

    @cached_property
    def _hash(self) -> int:
        return hash((self.k, self.l, self.blocks))

    def __hash__(self) -> int:  # cached: called hundreds of times in a training step
        return self._hash

    @cached_property
    def input_pattern(self) -> Partition:
        """Equality pattern of i: a partition of 0..k-1."""
        parts = (tuple(p for p in block if p < self.k) for block in self.blocks)
        return tuple(sorted(part for part in parts if part))

    @cached_property
    def output_pattern(self) -> Partition:
        """Equality pattern of j: a partition of 0..l-1."""
        parts = (tuple(p - self.k for p in block if p >= self.k) for block in self.blocks)
        return tuple(sorted(part for part in parts if part))

    @cached_property
    def shared(self) -> tuple[tuple[int, int], ...]:
        """(block of the input pattern, block of the output pattern) for each block with positions of both."""
        pairs = []
        for block in self.blocks:
            ins, outs = tuple(p for p in block if p < self.k), tuple(p - self.k for p in block if p >= self.k)
            if ins and outs:
                pairs.append((self.input_pattern.index(ins), self.output_pattern.index(outs)))
        return tuple(sorted(pairs))

    @cached_property
    def free(self) -> tuple[int, ...]:
        """Blocks of the input pattern without an output position: the nodes that are summed over."""
        held = {a for a, _ in self.shared}
        return tuple(a for a in range(len(self.input_pattern)) if a not in held)

    @property
    def is_light(self) -> bool:
        """Whether the class has no sum over the input, as those of lightweight layers (Section 4.1)."""
        return not self.free

    @property
    def is_global(self) -> bool:
        """Whether input and output share no node, as in the classes that "w/o global" removes (Section 5)."""
        return bool(self.free) and not self.shared

    @property
    def key_plan(self) -> tuple:
        """Classes with equal `key_plan` sum over the same input tuples in the same groups."""
        held = tuple(a for a, _ in self.shared)
        return (self.input_pattern, held, self.blocks if len(held) > 1 else ())

    @property
    def query_plan(self) -> tuple:
        """Classes with equal `query_plan` have the same output tuples in the same groups."""
        held = tuple(b for _, b in self.shared)
        return (self.output_pattern, held, self.blocks if len(held) > 1 else ())

    @cached_property
    def coarser(self) -> tuple["EquivalenceClass", ...]:
        """The classes in which one or more summed nodes equal output nodes that are not shared in this class."""
        taken = {b for _, b in self.shared}
        open_outputs = [b for b in range(len(self.output_pattern)) if b not in taken]
        found = []
        for count in range(1, min(len(self.free), len(open_outputs)) + 1):
            for ins in combinations(self.free, count):
                for outs in permutations(open_outputs, count):
                    found.append(
                        from_patterns(
                            self.input_pattern,
                            self.output_pattern,
                            (*self.shared, *zip(ins, outs, strict=True)),
                            self.k,
                            self.l,
                        )
                    )
        return tuple(found)


def from_patterns(
    input_pattern: Partition, output_pattern: Partition, shared: tuple[tuple[int, int], ...], k: int, l: int
) -> EquivalenceClass:
    """The class with these patterns and one node in input block a and output block b for each (a, b) in `shared`."""
    partner = dict(shared)
    blocks = []
    for a, ins in enumerate(input_pattern):
        outs = output_pattern[partner[a]] if a in partner else ()
        blocks.append((*ins, *(p + k for p in outs)))
    held = set(partner.values())
    blocks += [tuple(p + k for p in outs) for b, outs in enumerate(output_pattern) if b not in held]
    return EquivalenceClass(k, l, tuple(sorted(blocks)))


@cache
def equivalence_classes(k: int, l: int, distinct_output: bool = False) -> tuple[EquivalenceClass, ...]:
    """The Bell(k + l) classes of L_{k->l}, by output pattern, those without a sum first.

    Args:
        k: input order.
        l: output order.
        distinct_output: only classes whose output nodes all differ (k-uniform hyperedges).
    """
    classes = [EquivalenceClass(k, l, p) for p in set_partitions(k + l)]
    if distinct_output:
        classes = [c for c in classes if len(c.output_pattern) == l]
    patterns = set_partitions(l)
    return tuple(
        sorted(classes, key=lambda c: (patterns.index(c.output_pattern), not c.is_light, len(c.blocks), c.blocks))
    )


def light_classes(k: int, l: int, distinct_output: bool = False) -> tuple[EquivalenceClass, ...]:
    """Classes of the lightweight layer (Eq. 14): those without a sum over the input.

    If there is none (k > 0, l = 0), all classes: Proposition 2 needs a nonempty subset. See `equivalence_classes` for
    the arguments.
    """
    classes = equivalence_classes(k, l, distinct_output)
    # unstated: lightweight layers to order 0 (queries of the readout). All classes, as the authors' implementation
    return tuple(c for c in classes if c.is_light) or classes
