"""Jobs: one seed of one resolved run each, in its own folder, done here, on hosts of Ray or as a trial of Ray Tune."""
