"""Names of a package whose modules need an optional library, imported at their first use."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping
from importlib import import_module
from typing import Any

from ...core.common.extras import how_to_install


def lazy_names(
    package: str,
    modules: Mapping[str, str],
    extra: str,
    text: str,
    libraries: Collection[str],
    error_type: type[ImportError] = ModuleNotFoundError,
) -> Callable[[str], Any]:
    """The `__getattr__` of a package. modules: the one of each name. text: of the error where one
    of these libraries is missing, with {name} and {missing}, before how to install the extra."""

    def find(name: str) -> Any:
        if name not in modules:
            known = ", ".join(modules)
            raise AttributeError(f"module {package!r} has no attribute {name!r}; it has {known}")
        try:
            return getattr(import_module(f".{modules[name]}", package), name)
        except ModuleNotFoundError as error:
            missing = (error.name or "").partition(".")[0]
            if missing not in libraries:
                raise
            message = f"{text.format(name=name, missing=missing)}: {how_to_install(extra)}"
            raise error_type(message, name=missing) from error

    return find
