"""A LightningModule as a flat vector: its layout, numbers and hooks."""
