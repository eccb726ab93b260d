"""How a metric is read where no paper prints it for the cell."""

# shown as percentages; rows and records have fractions
PERCENT = {"accuracy", "balanced-accuracy", "roc-auc", "f1-macro", "f1-micro", "ordered-pair-accuracy"}
