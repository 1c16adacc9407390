"""`forkroot plugins`: the table of installed plugins."""

from __future__ import annotations

import argparse
from typing import TYPE_CHECKING

from rich.table import Table
from rich.text import Text

from .common.console import console

if TYPE_CHECKING:
    from .registry import Plugin


_SHOWN_BY_NAME = ("register_adapters", "register_backends")


def add_plugins_options(parser: argparse.ArgumentParser) -> None:
    """Make this parser's command list the plugins. It takes no options."""
    parser.set_defaults(run=_plugins)


def plugins_table(plugins: tuple[Plugin, ...]) -> Table:
    """The table: name, version, contents and status of each plugin."""
    table = Table("plugin", "version", "brings", "status", box=None, padding=(0, 2, 0, 0))
    for plugin in plugins:
        fault = plugin.fault
        status = _status(plugin) if fault is None else f"broken: {fault}"
        cells = (plugin.name, plugin.version, ", ".join(_brought(plugin)), status)
        table.add_row(*map(Text, cells), style=None if fault is None else "red")
    return table


def _plugins(options: argparse.Namespace) -> int:
    """Print the table; 1 if a plugin is broken."""
    from .registry import registry

    found = registry().plugins
    console(highlight=False).print(plugins_table(found))
    return int(any(plugin.fault is not None for plugin in found))


def _brought(plugin: Plugin) -> list[str]:
    """The names of a plugin's adapters, parts and other hooks."""
    named = [f"adapter {adapter.name}" for adapter in plugin.adapters]
    named += [f"{part.kind} {part.name}" for part in plugin.parts]
    return named + [hook for hook in plugin.hooks if hook not in _SHOWN_BY_NAME]


def _status(plugin: Plugin) -> str:
    missing = plugin.missing()
    return f"not installed: {', '.join(missing)}" if missing else "ready"
