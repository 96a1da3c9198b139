"""The driver's part of a round: who takes part and where, what comes back, and the server half of the method."""
