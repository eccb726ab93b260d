"""Fast operations. The plain torch form of each is its definition, and its fast forms give the same numbers.

A paper's file does not call a kernel. Its modules mark methods as `@accelerated` (`gt_models.layers.accelerated`), and
`attached/` has faster implementations of them, which replace the plain equations where their conditions hold. Other
code calls an operation.

`use` fixes the form (tests, debugging), `forms_taken` says which ones ran (a run's record keeps it), `explain` says for
a model and a batch which form each operation takes and why not a faster one.
"""

from gt_models.kernels.dispatch import Form, Operation, all_operations, attach, explain, forms_taken, reads, use

__all__ = ["Form", "Operation", "all_operations", "attach", "explain", "forms_taken", "reads", "use"]
