"""Units of metrics for cells without a published number."""

# shown as percentages; rows and records have fractions
PERCENT = {
    *("accuracy", "balanced-accuracy", "roc-auc", "f1-macro", "f1-micro", "f1-binary", "ordered-pair-accuracy", "mrr"),
    *("hits@1", "hits@3", "hits@5", "hits@10", "hits@20", "hits@50", "hits@100"),
}
