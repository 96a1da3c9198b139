"""Readers shared by data sources: arrays, encoded images, lists of files, published files with checksums."""
