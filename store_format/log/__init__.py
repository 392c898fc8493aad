"""The commit log: walks over its records, appending records, and the dispatch requests of records."""
