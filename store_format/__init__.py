"""The bytes of a RocketMQ broker: its store files, its config files, its frames. Where versions differ, a `Rule` names the variants.

A store directory and a set of tables are two encodings of the same facts. This package knows store directories, and nothing of tables.
It takes buffers and names; it opens no path by itself, and has no Spark, no clock and no jobs.
"""
