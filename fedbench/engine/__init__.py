"""Local training: a fit as a value, the learner, and the engines that take fits."""
