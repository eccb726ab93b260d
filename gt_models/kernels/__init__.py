"""The shelf for speed: operations whose plain torch form is their definition, each with fast forms that give the same numbers.

A model calls an operation and never asks which form runs. `use` fixes the form (tests, debugging), `forms_taken` says which ones ran
(a run's record keeps it), `explain` says for a model and a batch which form each operation takes and why not a faster one.
"""

from gt_models.kernels.dispatch import Form, Operation, all_operations, explain, forms_taken, use

__all__ = ["Form", "Operation", "all_operations", "explain", "forms_taken", "use"]
