"""One HTTP server that stands in for the Messages API."""
