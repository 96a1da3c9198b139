"""Claims of papers as rows of data, and the study that tests them."""
