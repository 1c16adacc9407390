"""Optional packages of benchmarks: a script without one ends with the package's name."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

_BENCHMARKS = Path(__file__).resolve().parents[1]


@contextmanager
def needs(package: str) -> Iterator[None]:
    """Around the imports of an optional package, as `pip install` names it. If it is missing, a
    benchmark that runs as a script ends with one line that names what to install; any other
    importer gets the ModuleNotFoundError."""
    try:
        yield
    except ModuleNotFoundError as error:
        if not _is_script():
            raise
        raise SystemExit(f"{error}; install it with `pip install {package}`") from None


def _is_script() -> bool:
    main = getattr(sys.modules["__main__"], "__file__", None)
    return main is not None and _BENCHMARKS in Path(main).resolve().parents
