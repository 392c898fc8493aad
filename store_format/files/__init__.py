"""Files of a store as ranges of bytes: mapped files, changes laid over files, stretches in use."""
