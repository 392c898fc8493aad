"""Makes messages, many at once, for generated stores."""
