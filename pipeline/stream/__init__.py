"""Pull requests that keep arriving: read, answered and committed batch by batch."""
