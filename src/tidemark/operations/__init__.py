"""One function per use case; the command line (and later the REST server) only calls these."""
