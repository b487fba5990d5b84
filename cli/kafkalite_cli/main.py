"""`kafkalite`: finds the command, and turns what goes wrong into one line and an exit code.

Exit codes: 0 success, 1 failure (also if the reader of our output is gone), 2 bad input, 130 Ctrl-C.
"""

from __future__ import annotations

import contextlib
import gc
import importlib
import importlib.util
import io
import json
import os
import re
import sys

import click

from kafkalite import __version__
from kafkalite.errors import ApiError, ConfigError, ErrorCode, KafkaliteError, StartupRefused
from kafkalite.wording import number_of
from kafkalite_cli import hints
from kafkalite_cli.imports import uncollected
from kafkalite_cli.parameters import os_error_text
from kafkalite_cli.visible import visible

#: Command: (module with a click command of the command's name, one line of help). Imported when used: a broker's
#: imports must not slow down `kafkalite produce`, nor the other way round.
COMMANDS = {
    "serve": ("kafkalite_cli.serve", "Run one node."),
    "dev": ("kafkalite_cli.dev", "Run a whole cluster in the foreground."),
    "zookeeper": ("kafkalite_cli.zookeeper", "Run an embedded ZooKeeper server."),
    "top": ("kafkalite_cli.top", "Watch the whole cluster in the terminal."),
    "admin": ("kafkalite_cli.admin.command", "Show and change the cluster."),
    "produce": ("kafkalite_cli.records.produce", "Send lines from stdin to a topic."),
    "consume": ("kafkalite_cli.records.consume", "Print a topic's records."),
    "perf": ("kafkalite_cli.records.perf", "Measure how fast the cluster is."),
    "pipeline": ("kafkalite_cli.pipeline.command", "Run data pipelines on Spark, from topics to tables."),
    "profile": ("kafkalite_cli.profile", "Name clusters, and choose the one to use."),
    "completion": ("kafkalite_cli.completion", "Print a script that completes verbs and names in a shell."),
}

#: Maximum number of characters of an error line: a name of megabytes would hide the error.
MAX_LINE = 500

#: Options of all commands, which belong after them.
_OF_COMMANDS = frozenset({"--json", "--bootstrap", "--timeout", "--profile", "--client-config", "--yes"})

#: Set by the script that `completion` prints (click's protocol).
COMPLETE_VARIABLE = "_KAFKALITE_COMPLETE"

#: Refusals that say that the question was wrong.
BAD_INPUT = frozenset(
    {
        ErrorCode.INVALID_TOPIC_EXCEPTION,
        ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
        ErrorCode.TOPIC_ALREADY_EXISTS,
        ErrorCode.INVALID_PARTITIONS,
        ErrorCode.INVALID_REPLICATION_FACTOR,
        ErrorCode.INVALID_REPLICA_ASSIGNMENT,
        ErrorCode.INVALID_CONFIG,
        ErrorCode.INVALID_REQUEST,
        ErrorCode.POLICY_VIOLATION,
        ErrorCode.OFFSET_OUT_OF_RANGE,
        ErrorCode.UNSUPPORTED_COMPRESSION_TYPE,
        ErrorCode.TOPIC_DELETION_DISABLED,
        ErrorCode.REASSIGNMENT_IN_PROGRESS,
        ErrorCode.NO_REASSIGNMENT_IN_PROGRESS,
        ErrorCode.GROUP_ID_NOT_FOUND,
        ErrorCode.INVALID_GROUP_ID,
        ErrorCode.TRANSACTIONAL_ID_NOT_FOUND,
        ErrorCode.INVALID_TXN_STATE,
        ErrorCode.RESOURCE_NOT_FOUND,
        ErrorCode.LOG_DIR_NOT_FOUND,
        ErrorCode.SECURITY_DISABLED,
        ErrorCode.BROKER_ID_NOT_REGISTERED,
        ErrorCode.DELEGATION_TOKEN_AUTH_DISABLED,
        ErrorCode.DELEGATION_TOKEN_NOT_FOUND,
        ErrorCode.DELEGATION_TOKEN_REQUEST_NOT_ALLOWED,
    }
)


class LazyGroup(click.Group):
    """Imports a command's module when the command is used."""

    def list_commands(self, ctx: click.Context) -> list[str]:
        return [name for name, (module, _) in COMMANDS.items() if importlib.util.find_spec(module) is not None]

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        if cmd_name not in self.list_commands(ctx):
            return None
        with uncollected():
            command = getattr(importlib.import_module(COMMANDS[cmd_name][0]), cmd_name)
        assert isinstance(command, click.Command)
        return command

    def resolve_command(
        self, ctx: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        try:
            return super().resolve_command(ctx, args)
        except click.UsageError as error:
            if args[0] == "help":
                raise click.UsageError("use 'kafkalite --help', or 'kafkalite COMMAND --help'", ctx) from None
            close = hints.closest(args[0], self.list_commands(ctx))
            if close is None or "Did you mean" in error.format_message():
                raise
            raise click.UsageError(f"{error.format_message()} Did you mean {close!r}?", ctx) from None

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        with formatter.section("Commands"):
            formatter.write_dl([(name, COMMANDS[name][1]) for name in self.list_commands(ctx)])


@click.group(
    cls=LazyGroup,
    context_settings={"help_option_names": ["-h", "--help"]},
    epilog="Exit codes: 0 success; 1 failure; 2 invalid arguments, or the cluster rejected the request and nothing was changed; 130 Ctrl-C.",
)
@click.version_option(__version__)
def cli() -> None:
    """A replicated, partitioned log: one Python process per host, coordinated through ZooKeeper."""


def exit_code(error: KafkaliteError) -> int:
    """2 if the input was wrong, 1 if it could not be done."""
    if isinstance(error, ConfigError | StartupRefused):
        return 2
    return 2 if isinstance(error, ApiError) and error.code in BAD_INPUT else 1


def run(arguments: list[str]) -> int:
    """Run a command line; returns the exit code."""
    wants_json = "--json" in arguments
    if any(not _is_text(each) for each in arguments):
        _print_error("an argument is not UTF-8", "", wants_json=wants_json)
        return 2
    try:
        outcome = cli.main(arguments, prog_name="kafkalite", standalone_mode=False)
        return outcome if isinstance(outcome, int) and not isinstance(outcome, bool) else 0
    except click.exceptions.NoArgsIsHelpError as error:
        click.echo(error.format_message(), err=True)
        return 2
    except click.NoSuchOption as error:
        context = error.ctx
        said = error.format_message()
        if context is not None and context.command is cli and error.option_name in _OF_COMMANDS:
            said = f"{error.option_name} goes after the command: kafkalite COMMAND … {error.option_name}"
        elif context is not None and (hint := _option_hint(error.option_name, context)):
            said = f"No such option {error.option_name!r}. Use {hint}."
        elif context is not None and "Did you mean" not in said:
            said = f"{said} '{context.command_path} --help' lists the options."
        _print_error(said, "", wants_json=wants_json, path=context.command_path if context else "kafkalite")
        return error.exit_code
    except click.ClickException as error:
        context = getattr(error, "ctx", None)
        said = error.format_message().replace("a valid integer range", "a valid integer")
        path = context.command_path if context else "kafkalite"
        _print_error(_with_command(said, context), "", wants_json=wants_json, path=path)
        return error.exit_code
    except (click.Abort, KeyboardInterrupt):
        return 130
    except KafkaliteError as error:
        is_answer = isinstance(error, ApiError)
        _print_error(hints.with_key(str(error)), _code_of(error), wants_json=wants_json, is_answer=is_answer)
        return exit_code(error)
    except OSError as error:  # but for a reader of our output that has gone: click ends with 1 then, and says nothing
        _print_error(os_error_text(error), type(error).__name__, wants_json=wants_json)
        return 1


def _code_of(error: KafkaliteError) -> str:
    """Kafka's name of the error; if Kafka has none, that of its class."""
    if isinstance(error, ApiError):
        return error.code.name
    from kafkalite.rpc.answers import RpcError, RpcTimeout

    if isinstance(error, RpcTimeout):
        return ErrorCode.REQUEST_TIMED_OUT.name
    return ErrorCode.NETWORK_EXCEPTION.name if isinstance(error, RpcError) else type(error).__name__


def _option_hint(option: str, context: click.Context) -> str | None:
    parameters = context.command.params
    options = {name for each in parameters if isinstance(each, click.Option) for name in each.opts}
    arguments = [each.make_metavar(context) for each in parameters if isinstance(each, click.Argument)]
    verbs = context.command.list_commands(context) if isinstance(context.command, click.Group) else None
    return hints.for_option(option, options, arguments, path=context.command_path, verbs=verbs)


def _with_command(said: str, context: click.Context | None) -> str:
    """An error about an unknown command, with what other tools' users mean, or the closest one."""
    if not (found := re.match(r"No such command '([\w-]{1,40})'", said)):
        return said
    from kafkalite_cli.admin.command import admin

    group = context.command if context is not None else cli
    if found[1] == "help" and context is not None:
        return f"{found[0]}. Use '{context.command_path} --help'."
    name = "" if group is cli else group.name or ""
    if hint := hints.for_command(found[1], admin.list_commands(click.Context(admin)), name):
        return f"{found[0]}. Use {hint}."
    if "Did you mean" in said or context is None or not isinstance(group, click.Group):
        return said
    close = hints.closest(found[1], group.list_commands(context))
    return f"{found[0]}. " + (
        f"Did you mean {close!r}?" if close else f"'{context.command_path} --help' lists the commands."
    )


def _is_text(argument: str) -> bool:
    """Not bytes that this locale has no characters for: they could not be sent."""
    try:
        argument.encode()
    except UnicodeEncodeError:
        return False
    return True


def _print_error(
    message: str, code: str, *, wants_json: bool, path: str = "kafkalite", is_answer: bool = False
) -> None:
    line = visible(" ".join(message.split()))
    if len(line) > MAX_LINE:
        line = f"{line[:MAX_LINE]}… ({number_of(len(line), 'character')})"
    # What a broker answers has a name in Kafka's documentation; the other names are for programs.
    named = f"{line} ({code})" if is_answer and code not in line else line
    with contextlib.suppress(OSError):  # nobody listens, or the disk that stdout goes to is what is full
        click.echo(f"{path}: {named}", err=True)
        if wants_json:
            click.echo(json.dumps({"error": {"code": code or "USAGE", "message": line}}))


def _written(code: int) -> int:
    """The exit code, when all output has left. What a full disk did not take is dropped: Python would try again, and end with 120."""
    try:
        sys.stdout.flush()
    except OSError:
        os.dup2(os.open(os.devnull, os.O_WRONLY), 1)
        return code or 1
    return code


def _open_standard_files() -> None:
    """Reopen standard input, output and error if the parent process has closed them: files and sockets would get their numbers."""
    for number, name, mode in ((0, "stdin", "r"), (1, "stdout", "w"), (2, "stderr", "w")):
        try:
            os.fstat(number)
        except OSError:
            opened = os.open(os.devnull, os.O_RDWR)
            assert opened == number, "the lowest free number"
            setattr(sys, name, os.fdopen(opened, mode, encoding="utf-8"))


def _show_in_any_encoding() -> None:
    """A terminal without UTF-8 gets a question mark for what it has no character for: the default is a traceback. Records are bytes and pass by."""
    if isinstance(sys.stdout, io.TextIOWrapper) and sys.stdout.errors == "strict":
        sys.stdout.reconfigure(errors="replace")


def main() -> None:
    """The entry point. A shell that asks for completions is answered, and nothing else happens."""
    _open_standard_files()
    _show_in_any_encoding()
    if instruction := os.environ.get(COMPLETE_VARIABLE):
        from kafkalite_cli.completing import answer

        sys.exit(answer(cli, "kafkalite", COMPLETE_VARIABLE, instruction))
    code = _written(run(sys.argv[1:]))
    gc.freeze()  # or the interpreter's last collection goes through all that was imported: 7 % of a short command
    sys.exit(code)
