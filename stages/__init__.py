"""The pipeline: one module per DVC stage, and the rooms they share. Knows gt_models; nothing knows it."""
