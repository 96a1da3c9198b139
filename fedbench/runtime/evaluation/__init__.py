"""Scores of models: made on hosts, put together by the driver."""
