"""Fast operations. The plain torch form of each is its definition, and its fast forms give the same numbers.

A paper's file does not call a kernel. Its modules mark methods as `@accelerated` (`gt_models.layers.accelerated`), and
`attached/` has faster implementations of them, which replace the plain equations where their conditions hold. Other
code calls an operation.

`use` fixes the form (tests, debugging). `forms_taken` lists those that ran (stored in the record of a run). `explain`
lists for a model and a batch the form of each operation, and why it is not a faster one.
"""

from gt_models.kernels.dispatch import Form, Operation, all_operations, attach, explain, forms_taken, reads, use

__all__ = ["Form", "Operation", "all_operations", "attach", "explain", "forms_taken", "reads", "use"]
