"""Parameters of what we call in FlashInfer, as its wheels have them: the oldest and the newest
version that `pyproject.toml` allows. Those of a method after page_size are given by name: the
newest version takes them so, and hands them to a method of its own."""

from __future__ import annotations

import inspect

OLDEST, NEWEST = "0.6.14", "0.7.2.post1"

_DECODE, _PREFILL = "BatchDecodeWithPagedKVCacheWrapper", "BatchPrefillWithPagedKVCacheWrapper"
_PLAN_DECODE = (
    "self, indptr, indices, last_page_len, num_qo_heads, num_kv_heads, head_dim, page_size"
)
_PLAN_PREFILL = (
    "self, qo_indptr, paged_kv_indptr, paged_kv_indices, paged_kv_last_page_len, num_qo_heads, "
    "num_kv_heads, head_dim_qk, page_size, head_dim_vo=None, custom_mask=None, "
    "packed_custom_mask=None, causal=False, pos_encoding_mode='NONE', "
    "use_fp16_qk_reduction=False, sm_scale=None, window_left=-1, logits_soft_cap=None, "
    "rope_scale=None, rope_theta=None, q_data_type='float16', kv_data_type=None, "
    "o_data_type=None, non_blocking=True, prefix_len_ptr=None, token_pos_in_items_ptr=None, "
    "token_pos_in_items_len=0, max_item_len_ptr=None, seq_lens=None, seq_lens_q=None, "
    "block_tables=None, max_token_per_sequence=None, max_sequence_kv=None, "
    "fixed_split_size=None, disable_split_kv=False"
)
_INIT_PREFILL = (
    "self, float_workspace_buffer, kv_layout='NHD', use_cuda_graph=False, qo_indptr_buf=None, "
    "paged_kv_indptr_buf=None, paged_kv_indices_buf=None, paged_kv_last_page_len_buf=None, "
    "custom_mask_buf=None, mask_indptr_buf=None, backend='auto', jit_args=None, jit_kwargs=None"
)
_RESET = "self, float_workspace_buffer, int_workspace_buffer"
_RUN = "self, q, paged_kv_cache, *args, q_scale=None, k_scale=None, v_scale=None, out=None, "
_OLDEST = {
    f"{_DECODE}.__init__": (
        "self, float_workspace_buffer, kv_layout='NHD', use_cuda_graph=False, "
        "use_tensor_cores=False, paged_kv_indptr_buffer=None, paged_kv_indices_buffer=None, "
        "paged_kv_last_page_len_buffer=None, backend='auto', jit_args=None"
    ),
    f"{_DECODE}.plan": (
        f"{_PLAN_DECODE}, pos_encoding_mode='NONE', window_left=-1, logits_soft_cap=None, "
        "q_data_type='float16', kv_data_type=None, o_data_type=None, data_type=None, "
        "sm_scale=None, rope_scale=None, rope_theta=None, non_blocking=True, block_tables=None, "
        "seq_lens=None, fixed_split_size=None, disable_split_kv=False, q_len_per_req=1"
    ),
    f"{_DECODE}.run": (
        f"{_RUN}lse=None, return_lse=False, enable_pdl=None, window_left=None, sinks=None, "
        "q_len_per_req=None, skip_softmax_threshold_scale_factor=None, kv_cache_sf=None"
    ),
    f"{_DECODE}.reset_workspace_buffer": _RESET,
    f"{_PREFILL}.__init__": _INIT_PREFILL,
    f"{_PREFILL}.plan": _PLAN_PREFILL,
    f"{_PREFILL}.reset_workspace_buffer": _RESET,
    f"{_PREFILL}.run": (
        f"{_RUN}lse=None, return_lse=False, enable_pdl=None, window_left=None, sinks=None, "
        "kv_cache_sf=None, skip_softmax_threshold_scale_factor=None"
    ),
    "merge_state": "v_a, s_a, v_b, s_b",
    "merge_state_in_place": "v, s, v_other, s_other, mask=None",
    "sampling.softmax": "logits, temperature=None, enable_pdl=None",
    "sampling.top_k_renorm_probs": "probs, top_k",
    "sampling.top_p_renorm_probs": "probs, top_p, is_deterministic=False",
    "sampling.min_p_sampling_from_probs": (
        "probs, min_p, indices=None, deterministic=True, generator=None, check_nan=False, "
        "seed=None, offset=None, return_valid=False"
    ),
}
_NEWEST = _OLDEST | {
    f"{_DECODE}.plan": (
        f"{_PLAN_DECODE}, *, pos_encoding_mode='NONE', window_left=-1, window_right=0, "
        "logits_soft_cap=None, q_data_type='float16', kv_data_type=None, o_data_type=None, "
        "data_type=None, sm_scale=None, rope_scale=None, rope_theta=None, non_blocking=True, "
        "block_tables=None, seq_lens=None, fixed_split_size=None, disable_split_kv=False, "
        "q_len_per_req=1, is_causal=None"
    ),
    f"{_PREFILL}.__init__": f"{_INIT_PREFILL}, variant_owns_mask=False",
    f"{_PREFILL}.plan": f"{_PLAN_PREFILL}, uniform_q_len=None",
    f"{_PREFILL}.run": (
        f"{_RUN}lse=None, return_lse=False, lse_base='log2', lse_layout='NH', enable_pdl=None, "
        "window_left=None, sinks=None, kv_cache_sf=None, "
        "skip_softmax_threshold_scale_factor=None, use_fp16_softmax=None, uses_spcompress=None"
    ),
    "sampling.top_k_renorm_probs": "probs, top_k, is_deterministic=False",
}


def _parsed(texts: dict[str, str]) -> dict[str, inspect.Signature]:
    return {name: inspect.signature(eval(f"lambda {text}: None")) for name, text in texts.items()}


# By version, of each function and method.
SIGNATURES = {NEWEST: _parsed(_NEWEST), OLDEST: _parsed(_OLDEST)}
