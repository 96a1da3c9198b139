"""Pure functions on vectors: how uploads become one vector, or one for each client."""
