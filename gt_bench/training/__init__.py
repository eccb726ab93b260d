"""Training loop, batches, checkpoints and several processes."""
