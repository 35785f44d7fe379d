"""From a savepoint or a retained checkpoint to a new job: the origin, the plan, the writing."""
