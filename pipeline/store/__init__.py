"""One broker's store: load, start, clean shutdown, and look-ups in it."""
