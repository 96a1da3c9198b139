"""The state of the field: every method in many settings, with verdicts, as a page and as data."""
