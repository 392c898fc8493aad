"""The statements that define the views of a lake, one file each."""
