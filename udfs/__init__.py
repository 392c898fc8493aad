"""The rules by which the broker answers a pull, each in one module, with its SQL form if it has one.

The answer to a pull is a function of the request, the bounds of its queue at one moment, the queue's index units from the request's offset
on, their messages in the commit log, the caps and the filter. Spark only decides how many of them run at once.
"""
