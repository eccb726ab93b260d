"""How user-supplied data are read, and what is found out meanwhile."""

from dataclasses import dataclass, field


@dataclass(frozen=True)
class Reading:
    """How user-supplied data are read, and what is found out meanwhile.

    Attributes:
        level: "node", "graph", "edge" (targets of edges) or "link" (the edges themselves are the targets).
        column: column, array or attribute by which the data are split, with a value per target; it is no feature.
        own_split: whether a split of the data is read, where reading it is a choice.
        remarks: receives remarks for the user.
        labels: if the targets are words, receives them: the word of class 0, of class 1, and so on.
    """

    level: str
    column: str | None = None
    own_split: bool = True
    remarks: list[str] = field(default_factory=list, compare=False)
    labels: list[str] = field(default_factory=list, compare=False)

    @property
    def of_edges(self) -> bool:
        """Whether targets belong to edges."""
        return self.level in ("edge", "link")
