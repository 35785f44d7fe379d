"""The real job, killed with -9 and started again, judged by real readers."""
