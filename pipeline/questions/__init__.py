"""Questions about pulls: how one got its answer, what other settings change, how many pulls reading on takes."""
