"""Units of metrics for cells without a published number."""

# shown as percentages; rows and records have fractions
PERCENT = {"accuracy", "balanced-accuracy", "roc-auc", "f1-macro", "f1-micro", "ordered-pair-accuracy"}
