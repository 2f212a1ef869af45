"""The command line: options in, a verb's report out. The only door to typer."""

from patchq.cli.boundary import run

__all__ = ["run"]
