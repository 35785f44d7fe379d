"""One function per use case; the command line only calls these."""
