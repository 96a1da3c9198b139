"""The models that a run keeps, with what is needed to predict by them elsewhere."""
