"""The files of a store: what can be done with them, mapped files, changes laid over files, and the stretches in use."""
