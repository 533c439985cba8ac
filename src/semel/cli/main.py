"""The command line: `semel`. It reads and passes on; every rule is the machine's.

Exit codes: 0 all is well; 1 something is wrong, or the machine refused; 2 misuse, and nothing has changed.
"""

from __future__ import annotations

import sys

from semel.cli import reach
from semel.cli.base import cli

# isort: off
from semel.cli import cmd_run, cmd_crashtest, cmd_look, cmd_prove, cmd_decide, cmd_dead, cmd_pause, cmd_keep, cmd_audit
# isort: on

# as help lists their panels
COMMANDS = (cmd_run, cmd_crashtest, cmd_look, cmd_prove, cmd_decide, cmd_dead, cmd_pause, cmd_keep, cmd_audit)


def main() -> None:
    """The console entry point."""
    reach.here_on_path()
    for stream in (sys.stdout, sys.stderr):
        if hasattr(stream, "reconfigure"):
            stream.reconfigure(errors="backslashreplace")  # a terminal that cannot show a sign must not end the command
    cli(prog_name="semel")
