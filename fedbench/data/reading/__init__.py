"""What sources read files with: arrays, encoded images, lists of files, and published files with their checksums."""
