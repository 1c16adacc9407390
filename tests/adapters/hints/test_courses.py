"""Courses: what followed a call in runs that have ended is what hints of later runs say."""

from __future__ import annotations

from forkroot.adapters.hints.courses import MOST_CALLS, Courses
from forkroot.adapters.testing import ScriptedBackend
from forkroot.core.api.protocol import Call, ForkHint, Sampling, Text

STORY = "Once upon a time there was a town by the river. " * 4


class Clock:
    """Seconds that are set by hand."""

    def __init__(self):
        self.now = 100.0

    def __call__(self):
        return self.now


class Agent:
    """A program whose steps go on with the text of the steps before, and pause between them."""

    def __init__(self, pause=2.0):
        self.clock, self.pause = Clock(), pause
        self.courses = Courses(self.clock)
        self.backend = ScriptedBackend("four words of text")

    def run(self, num_steps, hint=None, known=None):
        """The hints of its calls."""
        course, hints, text = self.courses.begin("agent"), [], STORY
        for number in range(num_steps):
            self.clock.now += self.pause if number else 0.0
            call = Call((Text(text),), Sampling(max_tokens=50), hint=hint)
            call = course.hinted(call, "step", known)
            reply = self.backend.submit(call)
            self.clock.now += 1.0
            course.follow(reply)
            hints.append(reply.call.hint)
            text += f" And then, number {number}."
        course.end()
        return hints


def test_calls_of_a_run_bear_its_name_and_nothing_that_is_not_known():
    hints = Agent().run(3)
    assert len({hint.program for hint in hints}) == 1
    assert {(hint.calls_left, hint.tokens_left, hint.next_use) for hint in hints} == {
        (None, None, None)
    }


def test_calls_of_a_run_bear_the_name_of_its_kind():
    assert {hint.kind for hint in Agent().run(2)} == {"agent"}
    courses = Courses()
    call = Call((Text(STORY),), hint=ForkHint("root", kind="given"))
    assert courses.begin(("module", "Class")).hinted(call).hint.kind == "module.Class"
    assert courses.begin().hinted(call).hint.kind == "given"


def test_a_second_run_is_told_what_followed_in_the_first():
    agent = Agent()
    first, second = agent.run(3), agent.run(3)
    assert first[0].program != second[0].program
    assert [hint.calls_left for hint in second] == [2, 1, 0]
    assert [hint.next_use for hint in second] == [1, 1, 0]
    assert [hint.pause for hint in second] == [2.0, 2.0, None]
    tokens = agent.backend.submit(Call((Text("."),))).result(0).usage.completion_tokens
    assert [hint.tokens_left for hint in second] == [2 * tokens, tokens, 0]


def test_a_kind_that_changes_is_learned_anew():
    agent = Agent()
    agent.run(1)
    for _ in range(12):
        agent.run(4)
    assert [hint.calls_left for hint in agent.run(4)] == [3, 2, 1, 0]


def test_other_kinds_and_places_tell_nothing():
    agent = Agent()
    agent.run(3)
    course = agent.courses.begin("other")
    call = Call((Text(STORY),))
    assert course.hinted(call, "step").hint.calls_left is None
    assert agent.courses.begin("agent").hinted(call, "elsewhere").hint.calls_left is None


def test_what_an_adapter_knows_is_said_until_something_is_learned():
    agent, known = Agent(), ForkHint("", calls_left=7, tokens_left=70)
    assert {hint.calls_left for hint in agent.run(2, known=known)} == {7}
    assert [hint.calls_left for hint in agent.run(2, known=known)] == [1, 0]


def test_a_root_stays_in_the_hint():
    (hint,) = Agent().run(1, hint=ForkHint("root", 3, 1))
    assert (hint.root, hint.branches, hint.prefix_end) == ("root", 3, 1)


def test_branches_count_for_the_work_that_is_left_and_once_for_the_path():
    clock = Clock()
    courses, backend = Courses(clock), ScriptedBackend("a few words")
    for _ in range(2):
        course = courses.begin()
        root = course.hinted(Call((Text(STORY),)), "root")
        course.follow(backend.submit(root))
        clock.now += 1
        calls = [course.hinted(Call((Text(f"{STORY}{n}"),)), "branch") for n in range(4)]
        clock.now += 1
        for call in calls:
            course.follow(backend.submit(call))
        course.end()
    tokens = backend.submit(Call((Text("."),))).result(0).usage.completion_tokens
    assert root.hint.calls_left == 1
    assert root.hint.tokens_left == 4 * tokens
    assert [call.hint.tokens_left for call in calls] == [3 * tokens] * 4


def test_a_long_run_is_learned_from_as_far_as_its_first_calls():
    agent = Agent()
    agent.run(MOST_CALLS + 20)
    hints = agent.run(MOST_CALLS + 1)
    assert hints[0].calls_left == MOST_CALLS - 1
    assert hints[-1].calls_left is None


def test_a_report_counts_runs_cached_tokens_and_wrong_guesses():
    agent = Agent()
    for num_steps in (3, 3, 1):
        agent.run(num_steps)
    (report,) = agent.courses.reports
    assert (report.runs, report.calls, report.guesses, report.wrong) == (3, 7, 4, 1)
    assert report.prompt_tokens >= report.cached_tokens
    assert agent.courses.report().endswith("1 of 4 guesses wrong")
