"""Verdicts, tables and figures: made from records alone, so that every report can be deleted and made again."""
