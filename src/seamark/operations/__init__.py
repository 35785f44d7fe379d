"""One function for each use case; the command line only calls these."""
