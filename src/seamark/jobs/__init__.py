"""Jobs seen from outside: a storage's jobs, their checkpoints, drivers, tokens, transactions."""
