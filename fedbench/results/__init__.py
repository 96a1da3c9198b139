"""Results of runs and studies: schemas, readers, statistics, tables and loggers."""
