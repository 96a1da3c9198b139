"""One LightningModule as a flat vector, and every training loop."""
