"""Recipe sections of tasks with a special protocol, one file per protocol.

A section describes how long a run is, how it is limited, and which miniature of its dataset exists. The runs themselves
are in gt_bench/tasks/.
"""

from gt_bench.config.protocols.base import Protocol
from gt_bench.config.protocols.brec import BrecSection

# {task: section}; each section is also a field of Recipe (gt_bench/config/recipe.py)
PROTOCOLS: dict[str, type[Protocol]] = {section.KEY: section for section in (BrecSection,)}
