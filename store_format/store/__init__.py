"""The store as a whole: recovery, dispatch, look-ups, the checkpoint."""
