"""Observers of a run: they write records, and keep what is asked for. No number depends on them."""
