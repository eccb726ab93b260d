"""Sections of a recipe for tasks with a protocol of their own: how long such a run is, how it is cut, and what a miniature of its dataset holds. One
file per protocol; what its runs do is in gt_bench/tasks/."""

from gt_bench.config.protocols.base import Protocol
from gt_bench.config.protocols.brec import BrecSection

# by task; a protocol's section is also a field of Recipe (gt_bench/config/recipe.py)
PROTOCOLS: dict[str, type[Protocol]] = {section.KEY: section for section in (BrecSection,)}
