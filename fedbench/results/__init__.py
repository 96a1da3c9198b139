"""What runs leave behind: the schema, its readers, statistics and tables."""
