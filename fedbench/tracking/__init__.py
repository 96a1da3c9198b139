"""How runs and studies are tracked: loggers, W&B, progress on a terminal."""
