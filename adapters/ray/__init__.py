"""Ray as the distributed engine: replicas in actors, Ray Serve, and large batch jobs.

    connect("ray:auto", model="Qwen/Qwen2.5-0.5B-Instruct", replicas=8)
    forkroot.adapters.ray:deployment          # the import_path of an application of Ray Serve
    run_dataset(program, dataset, out="results")

Entry: `plugin.Plugin` makes the backend; `deployment` and `run_dataset`. Ray itself is imported at
the first use of one of them.
May import `core.api`, `core.common`, `core.process`, `adapters`, `adapters.router`,
`adapters.native` and `adapters.http`.
Never knows a cache, a kernel or another framework.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from ..common.lazy import lazy_names

if TYPE_CHECKING:
    from .dataset import run_dataset
    from .serve import deployment

__all__ = ["deployment", "run_dataset"]

_MODULE_OF = {"deployment": "serve", "run_dataset": "dataset"}
_TEXT = f"{__name__}.{{name}} needs Ray"
__getattr__ = lazy_names(__name__, _MODULE_OF, "ray", _TEXT, ("ray",), ImportError)
