"""A LightningModule as a flat vector: what is where in it, its numbers, its hooks."""
