"""DefaultMessageStore.getMessage: offset correction, batch caps, the scan, its results, and held pulls."""
