"""What a load measured: rates, shares and percentiles, as a table and as JSON."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any, NamedTuple

from .outcome import Outcome

FIRST, GAP, PER_TOKEN = "time to first token", "inter-token latency", "time per output token"
WHOLE = "end-to-end latency"
_SHARES = (0.5, 0.9, 0.99, 1.0)


class Percentiles(NamedTuple):
    """Of times in seconds."""

    p50: float
    p90: float
    p99: float
    most: float


@dataclass(frozen=True, slots=True)
class Figures:
    """Of one run of a load.

    seconds: from its beginning to its last answer. num_open: requests that were still open when it
      was stopped. failures: how many failed, by reason, the most frequent first. Tokens are those
      of requests that did not fail. cached_tokens: of their prompts; None where the server does not
      report it. times: percentiles by name. busy: share of the time in which this client computed.
      cached_share: of the prompt tokens; None where the server does not report it.
    """

    seconds: float
    num_ok: int
    num_open: int
    failures: Mapping[str, int]
    prompt_tokens: int
    cached_tokens: int | None
    completion_tokens: int
    times: Mapping[str, Percentiles]
    busy: float
    num_failed: int
    requests_per_second: float
    output_tokens_per_second: float
    cached_share: float | None

    @classmethod
    def of(cls, outcomes: Sequence[Outcome], num_open: int, busy: float) -> Figures:
        """Of these outcomes. busy: seconds."""
        well = [it for it in outcomes if it.failure is None]
        failures = Counter(it.failure for it in outcomes if it.failure is not None)
        seconds = max((it.ended for it in outcomes), default=0.0)
        cached = [it.cached_tokens for it in well if it.cached_tokens is not None]
        num_prompt = sum(it.prompt_tokens for it in well)
        num_written = sum(it.completion_tokens for it in well)
        return cls(
            seconds=seconds,
            num_ok=len(well),
            num_open=num_open,
            failures=dict(failures.most_common()),
            prompt_tokens=num_prompt,
            cached_tokens=sum(cached) if cached else None,
            completion_tokens=num_written,
            times={
                name: Percentiles(*(quantile(values, share) for share in _SHARES))
                for name, values in samples(well).items()
                if values
            },
            busy=min(1.0, busy / seconds) if seconds else 0.0,
            num_failed=failures.total(),
            requests_per_second=len(well) / seconds if seconds else 0.0,
            output_tokens_per_second=num_written / seconds if seconds else 0.0,
            cached_share=sum(cached) / num_prompt if cached and num_prompt else None,
        )

    def body(self) -> dict[str, Any]:
        """As JSON."""
        return asdict(self) | {"times": {name: it._asdict() for name, it in self.times.items()}}

    def lines(self) -> Iterator[tuple[str, str]]:
        """Names and values of all figures but the percentiles."""
        yield "requests that ended well", f"{self.num_ok:,}"
        yield "failed", f"{self.num_failed:,}"
        for reason, count in self.failures.items():
            yield f"  {reason}", f"{count:,}"
        if self.num_open:
            yield "still open when stopped", f"{self.num_open:,}"
        yield "seconds", f"{self.seconds:,.2f}"
        yield "requests/s", f"{self.requests_per_second:,.2f}"
        yield "output tokens/s", f"{self.output_tokens_per_second:,.1f}"
        yield "prompt tokens", f"{self.prompt_tokens:,}"
        yield "output tokens", f"{self.completion_tokens:,}"
        share = self.cached_share
        yield "cached share of prompt tokens", "not reported" if share is None else f"{share:.1%}"


def quantile(ordered: Sequence[float], share: float) -> float:
    """The value below which this share of them lies, on a line between its neighbours."""
    position = share * (len(ordered) - 1)
    low = int(position)
    high = min(low + 1, len(ordered) - 1)
    return ordered[low] + (ordered[high] - ordered[low]) * (position - low)


def samples(well: Sequence[Outcome]) -> dict[str, list[float]]:
    """All times of these requests in order, by name; those that were not measured are empty."""
    return {
        FIRST: sorted(it.first for it in well if it.first is not None),
        GAP: sorted(gap for it in well for gap in it.gaps),
        PER_TOKEN: sorted(it.per_token for it in well if it.per_token is not None),
        WHOLE: sorted(it.seconds for it in well),
    }
