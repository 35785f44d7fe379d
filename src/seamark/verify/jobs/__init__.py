"""The jobs that `seamark verify` brings along, as users write them."""
