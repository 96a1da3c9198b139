"""Studies are plans over jobs: a run, a grid, a comparison, a comparison over settings."""
