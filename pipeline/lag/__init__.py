"""Consumer lag, its history, the messages that groups lose by retention, and metrics."""
