"""Files of pull requests and of frames: read, checked, packed."""
