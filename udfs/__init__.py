"""The rules by which the broker answers a pull, each in one place with its SQL form beside it.

A pull is a function of the request, the bounds of its queue as of a moment, the queue's index units from the requested offset on, the
commit log behind them, the caps and the filter. Spark only decides how many of them run at once.
"""
