"""The closed loop in virtual time: producers, a broker's queues and the clients of one group that consume them.

Time is a number of microseconds since the simulation began; where a rule of the broker or the client asks for ms, it is cut. What happens
often (pulls, listeners, messages that come again) is one compiled loop over arrays, `event_loop`; what happens rarely (clients that come
and go, rebalancing) is Python between two stretches of it, `group_run`, on the rules of `udfs.consumer`.
"""
