"""Writing a savepoint: of a running job, or of a checkpoint that is there."""
