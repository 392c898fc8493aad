"""One record of the commit log: its codec, its columns, its checksum."""
