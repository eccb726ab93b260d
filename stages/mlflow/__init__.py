"""Everything that knows MLflow: a view of the records that can be deleted and is made again from them. Nothing of a run depends on it."""
