"""Imports a store directory into Delta tables."""
