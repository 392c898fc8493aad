"""Questions about pulls: how a pull got its answer, what other settings change, how many pulls a consumer needs to read a range."""
