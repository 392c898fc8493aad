"""The files of a store as byte ranges: mapped files, changes over files, ranges in use."""
