"""Messages that are made up, many at once, for generated stores."""
