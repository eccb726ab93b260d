"""Questions to many results at once: metrics from stored predictions, ranks, effects of one value, matched sizes."""
