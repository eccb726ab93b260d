"""Sections of a recipe for tasks with a protocol of their own: how long such a run is, how it is cut, and what a miniature of its dataset holds. One
file per protocol; what its runs do is in stages/tasks/."""

from stages.protocols.brec import BrecSection
from stages.protocols.protocol import Protocol

# by task; a protocol's section is also a field of Recipe (stages/recipe.py)
PROTOCOLS: dict[str, type[Protocol]] = {section.KEY: section for section in (BrecSection,)}
