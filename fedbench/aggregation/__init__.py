"""Pure functions that combine uploads into one vector, or into one per client."""
