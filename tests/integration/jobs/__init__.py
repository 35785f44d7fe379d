"""The real job, killed with -9 and started again, judged by what real readers see."""
