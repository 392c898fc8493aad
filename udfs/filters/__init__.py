"""Message filters: TAG, SQL92, bloom filters, and the filters that heartbeats register."""
