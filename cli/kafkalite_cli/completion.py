"""`kafkalite completion SHELL`: a script that lets the shell complete verbs and options."""

from __future__ import annotations

import click
from click.shell_completion import get_completion_class


@click.command()
@click.argument("shell", type=click.Choice(["bash", "zsh", "fish"]))
def completion(shell: str) -> None:
    """Print a script that completes verbs and options in a shell.

    Examples:

    \b
      kafkalite completion bash > /etc/bash_completion.d/kafkalite
      kafkalite completion zsh > ~/.zfunc/_kafkalite
      kafkalite completion fish > ~/.config/fish/completions/kafkalite.fish
    """
    from kafkalite_cli.main import COMPLETE_VARIABLE, cli

    found = get_completion_class(shell)
    assert found is not None, f"click does not know {shell}"
    click.echo(found(cli, {}, "kafkalite", COMPLETE_VARIABLE).source())
