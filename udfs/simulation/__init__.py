"""The simulation in virtual time: producers, the queues of brokers, and the clients of one group that consumes them.

Time is the number of microseconds since the simulation began; rules of the broker or the client that need ms get it rounded down. Frequent
events (pulls, listeners, redelivered messages) run in a compiled loop over arrays, `event_loop`. Rare events (clients that start and stop,
rebalances) run in Python, `group_run`, between two calls of that loop; they use the rules of `udfs.consumer`.
"""
