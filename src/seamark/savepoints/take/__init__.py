"""Takes a savepoint: of a running job, or of an existing checkpoint."""
