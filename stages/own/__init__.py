"""Your own: any model on any dataset at once, models and data that lie elsewhere, and a table of what came of it beside all that is known."""
