"""`kafkalite profile`: clusters under a name."""

from __future__ import annotations

import click

from kafkalite.errors import ConfigError
from kafkalite_cli.invocation import settings_of_file
from kafkalite_cli.output import Output, confirm
from kafkalite_cli.parameters import json_option, yes_option
from kafkalite_cli.passwords import read_password
from kafkalite_cli.profiles import (
    SECRETS,
    Profiles,
    change_profiles,
    check_profile,
    profiles_path,
    read_profiles,
)

_PASSWORD = "sasl.password"


@click.group()
def profile() -> None:
    """Clusters under a name: their addresses, and how to log in.

    A verb uses, in this order: --bootstrap and --client-config; --profile; KAFKALITE_BOOTSTRAP and KAFKALITE_CLIENT_CONFIG;
    KAFKALITE_PROFILE; the profile of 'profile use'; localhost:9092.
    """


@profile.command("create")
@click.argument("name")
@click.option("--bootstrap", required=True, metavar="HOST:PORT,…", help="Kafka addresses of some nodes.")
@click.option("--client-config", "file", metavar="FILE", help="TOML with security.protocol, ssl.*, sasl.*: copied.")
@click.option("--set", "pairs", multiple=True, metavar="KEY=VALUE", help="One such setting; may be given again.")
@click.option("--replace", is_flag=True, help="Overwrite a profile of this name.")
@json_option
def create(
    name: str, bootstrap: str, file: str | None, pairs: tuple[str, ...], *, replace: bool, as_json: bool
) -> None:
    """Create a profile. The first one is used at once.

    The file of profiles belongs to you alone (mode 0600). If the protocol is SASL and there is no sasl.password, it is asked for, or
    read from stdin.

    Examples:

    \b
      kafkalite profile create dev --bootstrap localhost:9092
      kafkalite profile create prod --bootstrap b1:9092,b2:9092 --client-config client.toml
      kafkalite profile create prod --bootstrap b1:9092 --set security.protocol=SASL_SSL --set sasl.username=alice
    """
    settings = {} if file is None else settings_of_file(file)
    for pair in pairs:
        key, equals, value = pair.partition("=")
        if not equals or not key:
            raise click.BadParameter(f"{pair!r} is not KEY=VALUE", param_hint="--set")
        settings[key] = value
    if (
        settings.get("security.protocol", "").upper().startswith("SASL")
        and not {_PASSWORD, "sasl.jaas.config"} & settings.keys()
    ):
        settings[_PASSWORD] = read_password()
    made = check_profile(name, bootstrap, settings)

    def change(known: Profiles) -> Profiles:
        if name in known.by_name and not replace:
            raise ConfigError(f"profile {name!r} exists: use --replace to overwrite it")
        current = known.current if known.current in known.by_name else name
        return Profiles(current, {**known.by_name, name: made})

    current = change_profiles(change).current
    used = " It is used now." if current == name else f" 'kafkalite profile use {name}' chooses it."
    Output(as_json).value({"profile": name, "current": current}, f"created profile {name}.{used}")


@profile.command("list")
@json_option
def list_(*, as_json: bool) -> None:
    """All profiles; the one in use has a star.

    Example:

    \b
      kafkalite profile list
    """
    known = read_profiles()
    out = Output(as_json)
    if as_json:
        names = [
            {"profile": each.name, "bootstrap": each.bootstrap, "is_current": each.name == known.current}
            for _, each in sorted(known.by_name.items())
        ]
        out.value({"profiles": names})
        return
    if not known.by_name:
        click.echo("there are no profiles: 'kafkalite profile create' makes one")
        return
    rows = [
        (
            "*" if name == known.current else "",
            name,
            each.bootstrap,
            each.settings.get("security.protocol", "PLAINTEXT"),
        )
        for name, each in sorted(known.by_name.items())
    ]
    out.table(("used", "profile", "bootstrap", "protocol"), rows)


@profile.command("use")
@click.argument("name", required=False)
@click.option("--none", "is_none", is_flag=True, help="Use no profile.")
@json_option
def use(name: str | None, *, is_none: bool, as_json: bool) -> None:
    """Choose the profile for all following commands.

    Examples:

    \b
      kafkalite profile use prod
      kafkalite profile use --none
    """
    if (name is None) != is_none:
        raise click.UsageError("give the NAME of a profile, or --none")
    chosen = name or ""
    change_profiles(lambda known: Profiles("" if name is None else known.named(name).name, known.by_name))
    Output(as_json).value({"current": chosen}, f"using profile {chosen}" if chosen else "using no profile")


@profile.command("show")
@click.argument("name", required=False)
@json_option
def show(name: str | None, *, as_json: bool) -> None:
    """A profile's settings [default: the one in use]. Passwords are hidden.

    Example:

    \b
      kafkalite profile show prod
    """
    known = read_profiles()
    if name is None and not known.current:
        raise ConfigError("no profile is in use: 'kafkalite profile use' chooses one")
    found = known.named(name or known.current)
    shown = {key: "(hidden)" if key in SECRETS else value for key, value in sorted(found.settings.items())}
    value = {"profile": found.name, "bootstrap": found.bootstrap, "settings": shown, "file": str(profiles_path())}
    rows = [("profile", found.name), ("bootstrap", found.bootstrap), *shown.items(), ("file", str(profiles_path()))]
    width = max(len(key) for key, _ in rows)
    Output(as_json).value(value, "\n".join(f"{key.ljust(width)}  {text}" for key, text in rows))


@profile.command("delete")
@click.argument("name")
@yes_option
@json_option
def delete(name: str, *, yes: bool, as_json: bool) -> None:
    """Delete a profile, with its password. The cluster is not changed.

    Example:

    \b
      kafkalite profile delete prod
    """
    read_profiles().named(name)
    confirm(f"Delete profile {name}?", yes=yes)

    def change(known: Profiles) -> Profiles:
        left = {each: kept for each, kept in known.by_name.items() if each != name}
        return Profiles("" if known.current == name else known.current, left)

    change_profiles(change)
    Output(as_json).value({"profile": name, "deleted": True}, f"deleted profile {name}")
