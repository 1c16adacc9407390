"""The words make plain frozen nodes, and refuse at once what could never run."""

import pytest

from forkroot.adapters.native import (
    assistant,
    function,
    gen,
    gen_int,
    gen_string,
    image,
    role,
    select,
    system,
    user,
    video,
)
from forkroot.adapters.native.language.expressions import (
    Constant,
    Gen,
    Media,
    RoleBegin,
    RoleEnd,
    Row,
    Select,
    as_expression,
    flatten,
    variables_of,
)
from forkroot.adapters.testing import ScriptedBackend
from forkroot.core.api.protocol import (
    COMPACT,
    SPACED,
    Completion,
    Grammar,
    Image,
    InvalidCall,
    JsonSchema,
    Output,
    Regex,
    TokenLogprob,
    Video,
)


def test_gen_keeps_only_what_it_was_given() -> None:
    assert gen("x", 5, stop="\n") == Gen("x", {"max_tokens": 5, "stop": ("\n",)})


def test_a_list_of_stops_becomes_a_tuple() -> None:
    node = gen("x", stop=["a", "b"], stop_token_ids=[1, 2])
    assert node.sampling == {"stop": ("a", "b"), "stop_token_ids": (1, 2)}


def test_every_sampling_argument_reaches_its_field() -> None:
    node = gen(
        "x",
        max_tokens=9,
        min_tokens=1,
        n=2,
        temperature=0.5,
        top_p=0.9,
        top_k=3,
        min_p=0.1,
        frequency_penalty=0.2,
        presence_penalty=0.3,
        repetition_penalty=1.1,
        logit_bias={5: -1.0},
        seed=7,
        ignore_eos=True,
        log_mass=True,
    )
    assert node.sampling == {
        "max_tokens": 9,
        "min_tokens": 1,
        "n": 2,
        "temperature": 0.5,
        "top_p": 0.9,
        "top_k": 3,
        "min_p": 0.1,
        "frequency_penalty": 0.2,
        "presence_penalty": 0.3,
        "repetition_penalty": 1.1,
        "logit_bias": {5: -1.0},
        "seed": 7,
        "ignore_eos": True,
        "log_mass": True,
    }


def test_log_probabilities_are_requested_with_or_without_top_ones() -> None:
    assert gen("x", return_logprob=True).sampling == {"logprobs": 0}
    assert gen("x", top_logprobs_num=3).sampling == {"logprobs": 3}


@pytest.mark.parametrize(
    ("given", "expected"),
    [
        ({"regex": "[ab]+"}, Regex("[ab]+")),
        ({"json_schema": {"type": "object"}}, JsonSchema({"type": "object"}, SPACED)),
        ({"json_schema": '{"type": "object"}'}, JsonSchema({"type": "object"}, SPACED)),
        ({"json_schema": JsonSchema({})}, JsonSchema({}, COMPACT)),
        ({"grammar": 'start: "a"'}, Grammar('start: "a"')),
        ({"grammar": Grammar("root ::= x", "gbnf")}, Grammar("root ::= x", "gbnf")),
        ({"dtype": int}, Regex("[+-]?[0-9]+")),
        ({"dtype": "float"}, Regex(r"[+-]?[0-9]+(\.[0-9]+)?")),
        ({"dtype": bool}, Regex("(True|False)")),
        ({"dtype": str}, Regex(r'"[^"\\\n]*"')),
    ],
)
def test_a_constraint_is_passed_on(given, expected):
    assert gen("x", **given).constraint == expected


def test_gen_int_and_gen_string_are_gens_of_a_type() -> None:
    assert gen_int("x", 3) == gen("x", 3, dtype=int)
    assert gen_string("x", stop="\n") == gen("x", stop="\n", dtype=str)


def test_gen_with_choices_is_a_select() -> None:
    expected = Select("x", ("a", "b"), "greedy_token_selection", None)
    assert gen("x", choices=["a", "b"], choices_method="greedy_token_selection") == expected
    assert select("x", ["a", "b"], choices_method="greedy_token_selection") == expected


@pytest.mark.parametrize(
    ("make", "field"),
    [
        (lambda: gen("x", temperature=-1), "temperature"),
        (lambda: gen("x", stop=[""]), "stop"),
        (lambda: gen("x", n=0), "n"),
        (lambda: gen("x", 3, min_tokens=4), "min_tokens"),
        (lambda: gen(""), "name"),
        (lambda: gen("x", regex="a", dtype=int), "regex"),
        (lambda: gen("x", choices=["a"], temperature=0.5), "temperature"),
        (lambda: gen("x", choices=["a"], regex="a"), "regex"),
        (lambda: gen("x", dtype=dict), "dtype"),
        (lambda: gen("x", choices=["a"], stream=True), "stream"),
        (lambda: gen("x", json_schema="{"), "json_schema"),
        (lambda: gen("x", json_schema="[1]"), "json_schema"),
        (lambda: gen("x", json_schema=3), "json_schema"),
        (lambda: gen("x", regex=3), "regex"),
        (lambda: gen("x", grammar=3), "grammar"),
        (lambda: gen("x", resample=True, n=4), "resample"),
        (lambda: gen("x", resample=True, regex="a"), "resample"),
        (lambda: gen("x", resample=True, regex="a", n=1), "resample"),
        (lambda: gen("x", resample=3, regex="a", n=2), "resample"),
        (lambda: gen("x", resample=True, choices=["a"]), "resample"),
        (lambda: gen("x", choices=["a"], max_tokens="3"), "max_tokens"),
        (lambda: gen("x", top_logprobs_num="3"), "top_logprobs_num"),
        (lambda: gen("x", top_logprobs_num=100), "top_logprobs_num"),
        (lambda: gen("x", return_logprob="yes"), "return_logprob"),
        (lambda: gen("x", stream="yes"), "stream"),
        (lambda: gen("x", backend=3), "backend"),
        (lambda: gen("x", stop=[1]), "stop"),
        (lambda: gen("x", log_mass=1), "log_mass"),
        (lambda: gen("x", temprature=1), "temprature"),
        (lambda: gen_int("x", temprature=1), "temprature"),
        (lambda: select("x", ["a"], choice_method="a"), "choice_method"),
        (lambda: select("x", []), "choices"),
        (lambda: select("x", ["a", ""]), "choices"),
        (lambda: select("x", "ab"), "choices"),
        (lambda: select("x", 3), "choices"),
        (lambda: select("x", None), "choices"),
        (lambda: select("x", ["a"], backend=3), "backend"),
        (lambda: role("", "a"), "role"),
        (lambda: role(" ", "a"), "role"),
        (lambda: role(None, "a"), "role"),
        (lambda: role("\ud800", "a"), "role"),
        (lambda: select("x", ["a"], choices_method="best"), "choices_method"),
        (lambda: video(b"v", 0), "num_frames"),
        (lambda: image("no/such/file.png"), "source"),
        (lambda: image(3), "source"),
        (lambda: as_expression(3), "expression"),
    ],
)
def test_what_is_not_allowed_is_refused_where_it_is_written(make, field):
    with pytest.raises(InvalidCall) as caught:
        make()
    assert caught.value.field == field


def test_arguments_that_do_not_go_together_are_named() -> None:
    with pytest.raises(InvalidCall) as caught:
        gen("x", regex="a", dtype=int)
    assert str(caught.value) == (
        "invalid regex='a': expected at most one of dtype, regex, json_schema, grammar, choices;"
        " dtype is set too"
    )
    allowed = "only name, choices_method and backend together with choices"
    with pytest.raises(InvalidCall, match=f"invalid stop='b': expected {allowed}"):
        gen("x", choices=["a"], temperature=0, stop="b", backend="other")


@pytest.mark.parametrize(
    ("name", "suggested"),
    [("usr", "user"), ("User", "user"), ("asistant", "assistant"), ("sytem", "system")],
)
def test_a_misspelled_role_is_refused_with_a_suggestion(name: str, suggested: str) -> None:
    with pytest.raises(
        InvalidCall, match=rf"^invalid role={name!r}: .*; did you mean {suggested}\?$"
    ):
        role(name, "hi")


@pytest.mark.parametrize(
    "name", ["developer", "tool", "tools", "ipython", "model", "observation", "assistant_2"]
)
def test_a_role_that_only_some_templates_know_is_taken(name: str) -> None:
    assert role(name, "hi") == Row((RoleBegin(name), Constant("hi"), RoleEnd()))


def test_a_misspelled_keyword_is_refused_with_a_suggestion() -> None:
    with pytest.raises(
        InvalidCall, match=r"min_p, .*, top_p; did you mean temperature\?$"
    ) as caught:
        gen("x", temprature=0.5)
    assert (caught.value.field, caught.value.value) == ("temprature", 0.5)
    with pytest.raises(InvalidCall) as caught:
        gen("x", zzz=1)
    assert "did you mean" not in str(caught.value)


def test_a_resampling_gen_requests_the_log_mass() -> None:
    node = gen("x", n=4, resample=True, regex="[ab]")
    assert node == Gen("x", {"n": 4, "log_mass": True}, Regex("[ab]"), resample=True)


def test_text_and_expressions_add_up_to_one_row() -> None:
    row = "a" + gen("x") + "b" + (gen("y") + "c")
    nodes = (Constant("a"), Gen("x"), Constant("b"), Gen("y"), Constant("c"))
    assert row == Row(nodes)
    assert tuple(flatten(row)) == nodes


def test_adding_leaves_its_operands_as_they_were() -> None:
    start = "a" + gen("x")
    start + "b"
    assert start == Row((Constant("a"), Gen("x")))


@pytest.mark.parametrize(
    ("word", "name"), [(system, "system"), (user, "user"), (assistant, "assistant")]
)
def test_a_role_surrounds_its_content(word, name):
    expected = (RoleBegin(name), Constant("hi "), Gen("x"), RoleEnd())
    assert tuple(flatten(word("hi " + gen("x")))) == expected
    assert role(name, "hi " + gen("x")) == word("hi " + gen("x"))


def test_images_and_videos_are_read_from_bytes_and_files(tmp_path):
    path = tmp_path / "picture.png"
    path.write_bytes(b"png")
    assert image(path) == image(str(path)) == image(b"png") == Media(Image(b"png"))
    assert video(path, 8) == Media(Video(b"png", 8))


def test_only_nodes_with_a_name_set_a_variable() -> None:
    assert variables_of(gen("x")) == ("x",)
    assert variables_of(gen()) == ()
    assert variables_of(Constant("x")) == ()


def test_an_expression_in_an_f_string_is_refused() -> None:
    with pytest.raises(InvalidCall, match=r"a gen in an f-string.*text \+ gen"):
        f"Answer: {gen('x')}"


def test_select_refuses_a_choice_that_is_given_twice() -> None:
    with pytest.raises(InvalidCall, match=r"choices=.*different texts; 'b' is given twice"):
        select("x", ["a", "b", "b"])


def test_the_tokens_of_a_prompt_can_be_scored() -> None:
    scored = (TokenLogprob(66, -0.5),)
    backend = ScriptedBackend(lambda call: Completion((Output("x"),), prompt_logprobs=scored))

    @function
    def write(s):
        s += "ab" + gen("own", scored_from=1) + gen("run")

    state = write.run(scored_from=2, backend=backend)
    assert [call.scored_from for call in backend.calls] == [1, 2]
    assert state.get_meta_info("own")["prompt_logprobs"] == scored
    assert "prompt_logprobs" not in write.run(backend=backend).get_meta_info("run")
    for position in (-1, 0.5, True):
        with pytest.raises(InvalidCall, match="scored_from"):
            gen(scored_from=position)
        with pytest.raises(InvalidCall, match="scored_from"):
            write.run(scored_from=position, backend=backend)
