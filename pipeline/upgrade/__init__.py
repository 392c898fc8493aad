"""What another version of the broker changes for a store and its traffic: pulls, groups, settings, files."""
