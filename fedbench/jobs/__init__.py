"""Jobs: one seed of one resolved run each, in its own folder, run here, on Ray hosts or as a trial of Ray Tune."""
