"""The papers' tables as experiments: published.csv has their numbers, and a YAML file the protocol of each experiment.

A file has: `like`, an experiment that it starts from (`key+` adds to what stands there, `key` takes its place); `what`
it is; `config` of all runs; `cells`, each a data set and setting of published.csv with what it sets, for one method or
for all (`*`) where a value is a mapping, and `client` where a cell's numbers are those of one client; `methods`, where
a published name is not simply that method; `tune`, tried values by method or for all, and `trial`, what is set while
they are tried; `batches`, the methods that the paper scores by the mean over batches; `pooled`, whether over all test
images; `choice` of the round; `repeats` behind a published deviation; `open`, what the paper leaves open, with the
value taken; `small`, what a run at small scale sets. An experiment without cells has no runs.
"""
