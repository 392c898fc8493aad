"""What figures are compared with."""
