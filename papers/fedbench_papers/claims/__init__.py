"""Claims of papers as data rows, and the study that tests them."""
