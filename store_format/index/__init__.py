"""Index files: building, searching, and their sizes."""
