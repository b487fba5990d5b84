"""`kafkalite completion SHELL`: a script that lets the shell complete verbs, options and names."""

from __future__ import annotations

import click


@click.command()
@click.argument("shell", type=click.Choice(["bash", "zsh", "fish"]))
def completion(shell: str) -> None:
    """Print a script that completes verbs and options in a shell.

    Also names: topics, partitions, groups and brokers of the cluster (asked for one second at most, and remembered for ten), settings and
    profiles. No names are completed if no cluster answers. Names with characters
    that are special to a shell are never completed.

    Examples:

    \b
      kafkalite completion bash > /etc/bash_completion.d/kafkalite
      kafkalite completion zsh > ~/.zfunc/_kafkalite
      kafkalite completion fish > ~/.config/fish/completions/kafkalite.fish
    """
    from kafkalite_cli.completing import SHELLS
    from kafkalite_cli.main import COMPLETE_VARIABLE, cli

    click.echo(SHELLS[shell](cli, {}, "kafkalite", COMPLETE_VARIABLE).source())
