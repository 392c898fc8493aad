"""Hash codes and the iteration order of hash maps, as Java defines them."""
