"""Consume queues and their extension: files, entries, dispatch, and the messages that entries point to."""
