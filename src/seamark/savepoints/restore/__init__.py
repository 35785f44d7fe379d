"""From a savepoint or a retained checkpoint to a new job: what it begins from, the plan, the
writing."""
