"""Files written by released versions of Spark, read by tests on every version."""
