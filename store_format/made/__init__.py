"""Makes messages, many at once, for generated stores, and the random numbers of simulations."""
