"""What a command publishes while it runs: pages over HTTP, and metrics for Prometheus."""
