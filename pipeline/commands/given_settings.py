"""The broker's settings on the command line: --set, --properties and --rules."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from functools import wraps
from typing import TYPE_CHECKING, Any, TypeVar

import click

from pipeline.settings.settings import RULES_VERSION, BrokerSettings
from store_format.broker_version import BrokerVersion

if TYPE_CHECKING:
    from pipeline.requests.request_file import RequestFile

R = TypeVar("R")
VERSIONS = click.Choice([version.value for version in BrokerVersion])


@dataclass(frozen=True)
class GivenSettings:
    """The broker's settings on the command line: the values of --set, the path of --properties, and the value of --rules."""

    options: tuple[str, ...] = ()
    properties: str | None = None
    rules: str | None = None

    @property
    def with_rules(self) -> tuple[str, ...]:
        """The values of --set, after the value of --rules in the form of a setting."""
        return self.options if self.rules is None else (f"{RULES_VERSION}={self.rules}", *self.options)

    def over(
        self, stored: Mapping[str, str] | None = None, *, header: Any = None, header_where: str = "the config of the header"
    ) -> BrokerSettings:
        """Return the broker's settings: the command line overrides a request file's header, and the header overrides the import.

        Args:
            stored: the import's settings, texts by name; None without an import.
            header: the `config` object of a request file's header; None without one.
            header_where: name of the header in errors.

        Raises:
            SettingsError: a name is unknown, a value has another type, or the file of --properties cannot be read.
        """
        return BrokerSettings.from_sources(
            stored=stored, header=header, header_where=header_where, properties=self.properties, options=self.with_rules
        )

    def of_file(self, stored: Mapping[str, str], file: RequestFile | None) -> BrokerSettings:
        """Return the broker's settings as `over` does, with the header of `file` if there is one."""
        if file is None:
            return self.over(stored)
        return file.settings(stored=stored, properties=self.properties, options=self.with_rules)

    def of_store(self, store: str, *, header: Any = None, header_where: str = "") -> BrokerSettings:
        """Return the broker's settings as `over` does; if nothing else names the version, it is found from the files of the store.

        Raises:
            SettingsError: as in `over`.
            StoreError: the store cannot be read.
        """
        from pipeline.store.told_rules import told_rules

        return BrokerSettings.from_sources(
            header=header,
            header_where=header_where,
            properties=self.properties,
            options=self.with_rules,
            written_by=told_rules(store),
        )

    def check(self) -> None:
        """Check the settings, before anything is started.

        Raises:
            SettingsError: as in `over`.
        """
        self.over()


def settings_options(command: Callable[..., R]) -> Callable[..., R]:
    """Add the options --properties and --set; the command gets them as `settings`."""

    @wraps(command)
    def with_settings(*args: Any, settings: tuple[str, ...], properties: str | None, **options: Any) -> R:
        return command(*args, settings=GivenSettings(settings, properties), **options)

    file = click.Path(exists=True, dir_okay=False)
    decorated = click.option("--properties", type=file, metavar="FILE", help="The broker's broker.conf.")(with_settings)
    return click.option("--set", "settings", multiple=True, metavar="NAME=VALUE", help="A broker setting by its own name; repeatable.")(
        decorated
    )


def rules_option(command: Callable[..., R]) -> Callable[..., R]:
    """Add the option --rules to a command with `settings_options`, whose `settings` then name the version."""

    @wraps(command)
    def with_rules(*args: Any, settings: GivenSettings, rules: str | None, **options: Any) -> R:
        return command(*args, settings=replace(settings, rules=rules), **options)

    text = "Version of the broker whose rules hold; by default the one that settings, headers or the store's files tell, else 4.9.3."
    return click.option("--rules", type=VERSIONS, help=text)(with_rules)
