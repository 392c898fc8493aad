"""Delta tables -> store directory, whole or in part."""
