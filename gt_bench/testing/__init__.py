"""Golden runs of the whole grid."""
