"""`semel crashtest`: the user's own task in real worker processes, killed, frozen and cut at every boundary."""
