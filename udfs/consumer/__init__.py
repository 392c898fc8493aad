"""The rules of the client that consumes: which queues it has, which messages it holds, when it pulls, what it acknowledges.

Each rule is a function of a state and a time in ms, which the caller passes; no function waits, sends or reads a clock. If a step needs a
broker's answer, one function returns the question, and another one takes the answer.
"""
