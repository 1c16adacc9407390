"""The body of SGLang's `/generate`, field by field.

Nulls are defaults. Fields that are not known are kept, so that one that is not served can be named.
"""

from __future__ import annotations

from typing import Annotated, Any, TypeAlias

from pydantic import BeforeValidator, ConfigDict, Field

from ..wire.wire import Body, Items, Numbers, SamplingFields


class SamplingBody(SamplingFields):
    """SGLang's sampling parameters. Nulls are defaults."""

    model_config = ConfigDict(extra="allow")

    max_new_tokens: int | None = None
    min_new_tokens: int | None = None
    logit_bias: Numbers | None = None
    n: int | None = None
    regex: str | None = None
    json_schema: str | dict[str, Any] | None = None
    ebnf: str | None = None
    sampling_seed: int | None = None
    no_stop_trim: bool | None = None
    skip_special_tokens: bool | None = None
    spaces_between_special_tokens: bool | None = None
    stream_interval: int | None = None


def _listed(value: Any) -> Any:
    """One set of parameters as a list of one; none as the defaults."""
    return value if isinstance(value, list) else [{} if value is None else value]


OneOrMany: TypeAlias = SamplingBody | Items[SamplingBody] | None
SamplingBodies: TypeAlias = Annotated[
    Items[SamplingBody],
    BeforeValidator(_listed, json_schema_input_type=OneOrMany),
    Field(min_length=1),
]


class ConcatenateBody(Body):
    """A request to put what some states of a frontend's program wrote behind another one."""

    src_rids: Items[str]
    dst_rid: str


class GenerateBody(Body):
    """A request of `/generate`: one prompt, or a list of them."""

    model_config = ConfigDict(extra="allow")

    text: str | Items[str] | None = None
    input_ids: Items[int] | Items[Items[int]] | None = None
    image_data: Any = Field(None, description="a data: URL, http(s) URL or base64; or a list")
    video_data: Any = Field(None, description="as image_data")
    sampling_params: SamplingBodies = Field(default_factory=lambda: [SamplingBody()])
    return_logprob: bool | Items[bool] | None = None
    logprob_start_len: int | Items[int | None] | None = None
    top_logprobs_num: int | Items[int | None] | None = None
    return_text_in_logprobs: bool | None = None
    stream: bool | None = None
    rid: str | Items[str] | None = None
    cache_salt: str | None = None
    extra_key: str | None = None
    priority: int | None = None
    forkroot: dict[str, Any] | None = Field(None, description="a hint: root, prefix_end, branches")

    @property
    def is_list(self) -> bool:
        """Whether the answer is a list of answers."""
        ids = self.input_ids
        is_many = isinstance(self.text, list) or bool(ids and isinstance(ids[0], list))
        return is_many or (self.sampling_params[0].n or 1) > 1
