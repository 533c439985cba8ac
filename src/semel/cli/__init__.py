"""The command line: typer and rich."""
