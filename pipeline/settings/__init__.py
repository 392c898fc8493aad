"""The broker's settings, and quantities as people write them."""
