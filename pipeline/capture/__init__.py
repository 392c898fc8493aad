"""Read captured traffic: from a file of packets to connections, frames, and pull requests with the broker's answers."""
