"""Questions about pulls: how a pull got its answer, what other settings change, how many pulls reading a range takes."""
