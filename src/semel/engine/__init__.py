"""Procedures as generators: they yield requests, and know neither colour nor store."""
