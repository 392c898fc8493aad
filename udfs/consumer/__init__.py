"""The rules of the client that consumes: which queues are its own, what it holds of them, when it pulls, and what it acknowledges.

All of them are steps of a state that is passed in, at a time that is passed in as ms; nothing here waits, sends or reads a clock. What
needs an answer of a broker is said as a question, and taken up again by the step that is given the answer.
"""
