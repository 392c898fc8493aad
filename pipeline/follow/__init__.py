"""Following the store of a broker that runs."""
