"""The pure core: what may happen, decided once. No clock, no I/O, no randomness; time is an argument."""
