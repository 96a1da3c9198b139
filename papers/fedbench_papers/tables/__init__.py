"""The papers' tables as experiments: published.csv has their numbers, and a YAML file the protocol of each experiment.

A file has: `like`, the experiment that it extends (`key+` adds to a value, `key` replaces it); `what`, a description;
`config` of all runs; `cells`, each a data set and setting of published.csv with its keys, for one method or all (`*`)
if a value is a mapping, and `client` if a cell's numbers are one client's; `methods`, for published names that are not
simply that method; `tune`, candidate values by method or for all, and `trial`, keys of candidate runs; `batches`, the
methods that the paper scores by the mean over batches; `pooled`, whether over all test images; `points`, by method, the
evaluation point of its published numbers, unless after aggregation; `choice` of the round; `repeats` behind a published
deviation; `traced`, by metric of published.csv, the trace to compare with it, its factor `times`, and the experiment
`of` the numbers if it is another; `open`, what the paper leaves open, with our value; `small`, keys of runs at small
scale. An experiment without cells has no runs.

A figure is a file PAPER/figure-N.yaml of the same form with `figure` (see figure.py) instead of published numbers.
"""
