"""Exports the Delta tables of a broker as a store directory, whole or in part."""
