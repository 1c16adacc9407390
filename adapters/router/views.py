"""What several replicas report, as one: their figures and programs together, and their trees side
by side.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from typing import Any

from ...core.api.program_report import NUM_KINDS, KindUsage, ProgramReport, ordered
from ...core.api.protocol import BackendInfo, ForkrootError, NodeView
from .replica import Replica

_MAXIMA = frozenset({"replicas"})


def joined_info(
    infos: Sequence[BackendInfo],
    counters: Mapping[str, int | float],
    load: Mapping[str, int | float],
) -> BackendInfo:
    """The sum of what replicas count, beside the router's own figures."""
    if not infos:
        return BackendInfo("", 0, counters=counters, load=load)
    features = frozenset.intersection(*(frozenset(it.features) for it in infos))
    return replace(
        infos[0],
        context_len=min(it.context_len for it in infos),
        features=features,
        counters=_sums(it.counters for it in infos) | dict(counters),
        load=_sums(it.load for it in infos) | dict(load),
    )


def joined_report(backends: Iterable[Any], tenant: str | None) -> ProgramReport:
    """What programs have used on all of these, by tenant and kind; of a tenant only, if one is
    given. A replica that does not answer is left out."""
    found: dict[tuple[str | None, str], KindUsage] = {}
    num_left_out = 0
    for backend in backends:
        with contextlib.suppress(ForkrootError):
            report: ProgramReport = backend.program_report(tenant)
            num_left_out += report.num_left_out
            for it in report.kinds:
                key = it.tenant, it.kind
                found[key] = found[key] + it if key in found else it
    return ordered(list(found.values()), NUM_KINDS, num_left_out)


def joined_snapshot(
    replicas: Sequence[Replica], max_nodes: int | None, max_tokens: int | None
) -> tuple[NodeView, ...]:
    """The trees of replicas; ids differ, and the namespaces begin with the replica's name."""
    share = None if max_nodes is None else max(1, max_nodes // max(1, len(replicas)))
    found: list[NodeView] = []
    for replica in replicas:
        picture = getattr(replica.backend, "snapshot", None)
        views: Sequence[NodeView] = ()
        if picture is not None:
            with contextlib.suppress(ForkrootError):
                views = picture(share, max_tokens)
        found += _apart(views, replica, len(replicas))
    return tuple(found)


def _apart(views: Sequence[NodeView], replica: Replica, count: int) -> list[NodeView]:
    """The nodes with ids that no other replica's nodes have."""
    offset = replica.index

    def id_of(number: int) -> int:
        return number if number < 0 else (number << 16) | offset

    name = f"replica {replica.name}"
    return [
        replace(
            view,
            id=id_of(view.id),
            parent=id_of(view.parent),
            namespace=f"{name} / {view.namespace}" if view.namespace else name,
            children=tuple(map(id_of, view.children)),
        )
        for view in views
    ]


def _sums(figures: Iterable[Mapping[str, int | float]]) -> dict[str, int | float]:
    total: dict[str, int | float] = {}
    for one in figures:
        for name, value in one.items():
            total[name] = total.get(name, 0) + value
    return total
