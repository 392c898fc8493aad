"""Follows the store of a running broker."""
