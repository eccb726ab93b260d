"""Loss, metrics and evaluation protocol, one module per task."""
