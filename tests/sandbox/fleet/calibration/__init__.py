"""Real engines beside simulated ones: the same flags and the same load, and what each of them showed."""
