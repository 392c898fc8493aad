"""The commit log: files of records, appending to them, and dispatch requests made from them."""
