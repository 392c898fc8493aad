"""Read, check and pack files of pull requests; decode files of frames."""
