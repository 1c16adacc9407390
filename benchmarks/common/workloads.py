"""The paper's workloads as programs over made-up tokens: their shapes, not their words.

Every text and every length is generated from a seed before a program runs, so that all runtimes and
settings do the same work. Lengths are in tokens, after the paper's benchmarks (section 6 and
appendix); `share` scales how many programs there are, `size` how long their texts and answers are.
"""

from __future__ import annotations

from itertools import accumulate
from operator import mul

from forkroot.benchmarks.common.programs import (
    Body,
    Draft,
    Ids,
    Maker,
    Program,
    ProgramContext,
    Workload,
    answering,
)


def mmlu(make: Maker) -> Workload:
    """Five examples for each subject, then many questions: one token each."""
    bodies = [
        answering(shots, question, length=1)
        for shots in make.texts(make.num(57), 600, 1536)
        for question in make.texts(make.num(100, 16), 60, 140)
    ]
    return Workload("mmlu", bodies, 64)


def hellaswag(make: Maker) -> Workload:
    """Twenty examples, then a choice among four endings."""
    shots = make.ids(2000)

    def body(question: Ids, options: tuple[str, ...]) -> Body:
        return lambda context: context.begin(shots, question).select(options)

    questions = make.texts(make.num(200), 30, 70)
    bodies = [body(question, tuple(make.option() for _ in range(4))) for question in questions]
    return Workload("hellaswag", bodies)


def gsm8k(make: Maker) -> Workload:
    """Five worked examples, then a worked answer."""
    shots = make.ids(900)
    questions = make.texts(make.num(200), 40, 110)
    bodies = [answering(shots, text, length=make.length(80, 300)) for text in questions]
    return Workload("gsm8k", bodies)


def react(make: Maker) -> Workload:
    """An agent's trace replayed: each step generates, drops the answer and appends the trace."""
    shots = make.ids(1900)

    def body(question: Ids, trace: list[Ids], lengths: list[int]) -> Body:
        def run(context: ProgramContext) -> Program:
            draft = context.begin(shots, question)
            for text, length in zip([*trace, ()], lengths, strict=True):
                _, (attempt,) = draft.fork(1)
                yield [attempt.gen(length)]
                draft.add(text)

        return run

    bodies = []
    for question in make.texts(make.num(100), 20, 50):
        trace = make.texts(make.length(2, 6), 80, 250)
        bodies.append(body(question, trace, make.lengths(len(trace) + 1, 60, 200)))
    return Workload("react", bodies)


def generative_agents(make: Maker) -> Workload:
    """Events in a town: five templates with short answers, and personas that recur."""
    templates = list(zip(make.texts(5, 60, 400), (2, 20, 6, 10, 5), strict=True))
    personas = make.texts(25, 80, 200)
    bodies = []
    for event in make.texts(make.num(1000), 20, 60):
        (head, length), persona = make.random.choice(templates), make.random.choice(personas)
        bodies.append(answering(head, persona, event, length=length))
    return Workload("generative agents", bodies)


def tree_of_thought(make: Maker) -> Workload:
    """Three plans, three solutions of each, three judgements of each of these."""
    return Workload("tree of thought", _trees(make, (3, 3, 3)), 8)


def deep_tree(make: Maker) -> Workload:
    """Four levels of two branches each."""
    return Workload("deep tree of thought", _trees(make, (2, 2, 2, 2)), 8)


def _trees(make: Maker, widths: tuple[int, ...]) -> list[Body]:
    guides = make.texts(len(widths), 30, 60)
    sizes = list(accumulate(widths, mul))

    def grow(draft: Draft, depth: int, branch_index: int, lengths: list[list[int]]) -> Program:
        if depth == len(widths):
            return
        plants, branches = draft.add(guides[depth]).fork(widths[depth])
        first = branch_index * widths[depth]
        thoughts = [think(b, depth, first + i, lengths) for i, b in enumerate(branches)]
        yield [*plants, *thoughts]

    def think(draft: Draft, depth: int, branch_index: int, lengths: list[list[int]]) -> Program:
        yield from draft.gen(lengths[depth][branch_index])
        yield from grow(draft, depth + 1, branch_index, lengths)

    def body(question: Ids, lengths: list[list[int]]) -> Body:
        return lambda context: grow(context.begin(question), 0, 0, lengths)

    return [
        body(question, [make.lengths(size, 80, 256) for size in sizes])
        for question in make.texts(make.num(32), 80, 200)
    ]


def skeleton_of_thought(make: Maker) -> Workload:
    """Five short tips in a row; each is expanded at once, while the next tip is written."""
    ask, shots = make.ids(30), make.ids(300)

    def tips(draft: Draft, topic: Ids, lengths: list[tuple[int, int]]) -> Program:
        if not lengths:
            return
        (short, long), *rest = lengths
        start = len(draft.ids)
        yield from draft.gen(short)
        expanded = Draft(draft.context, (*shots, *topic, *draft.ids[start:]))
        yield [expanded.gen(long), tips(draft, topic, rest)]

    def body(topic: Ids, lengths: list[tuple[int, int]]) -> Body:
        return lambda context: tips(context.begin(ask, topic), topic, lengths)

    bodies = []
    for topic in make.texts(make.num(64), 5, 15):
        pairs = zip(make.lengths(5, 8, 24), make.lengths(5, 60, 128), strict=True)
        bodies.append(body(topic, list(pairs)))
    return Workload("skeleton of thought", bodies)


def judge(make: Maker) -> Workload:
    """An article is judged along six dimensions at a time, then graded."""
    return Workload("llm judge", _joins(make, make.num(25), 6, 256, 2, (600, 1000)), 16)


def multi_chain(make: Maker) -> Workload:
    """Five chains of reasoning, then a vote."""
    return Workload("multi-chain", _joins(make, make.num(50), 5, 256, 16, (60, 150)), 16)


def _joins(
    make: Maker, num: int, width: int, longest: int, last: int, text: tuple[int, int]
) -> list[Body]:
    """Programs that fork over a text, join what the branches wrote, and answer."""
    head, asks = make.ids(200), make.texts(width, 10, 30)

    def body(article: Ids, lengths: list[int]) -> Body:
        def run(context: ProgramContext) -> Program:
            draft = context.begin(head, article)
            plants, branches = draft.fork(width)
            pairs = zip(branches, asks, lengths, strict=True)
            yield [*plants, *(branch.write(ask, length) for branch, ask, length in pairs)]
            yield from draft.add(*(branch.own for branch in branches)).gen(last)

        return run

    return [body(t, make.lengths(width, longest // 3, longest)) for t in make.texts(num, *text)]


def chat(make: Maker) -> Workload:
    """Four turns of long questions and very short answers."""
    return Workload("chat, short answers", _chats(make, (4, 8)), 20)


def long_chat(make: Maker) -> Workload:
    """Four turns of long questions and long answers."""
    return Workload("chat, long answers", _chats(make, (256, 512)), 20)


def _chats(make: Maker, answer: tuple[int, int]) -> list[Body]:
    def body(turns: list[Ids], lengths: list[int]) -> Body:
        def run(context: ProgramContext) -> Program:
            draft = context.begin()
            for text, length in zip(turns, lengths, strict=True):
                yield from draft.write(text, length)

        return run

    return [body(make.texts(4, 256, 512), make.lengths(4, *answer)) for _ in range(make.num(20))]


def rag(make: Maker) -> Workload:
    """Instructions and examples, three passages that recur, a question."""
    demos, passages = make.ids(700), make.texts(60, 80, 140)
    bodies = []
    for question in make.texts(make.num(150), 15, 40):
        found = make.random.sample(passages, 3)
        bodies.append(answering(demos, *found, question, length=make.length(20, 60)))
    return Workload("rag", bodies)


def shared_prefixes(make: Maker) -> Workload:
    """Many long prefixes, each of sixteen calls; the calls come in any order."""
    bodies = [
        answering(prefix, question, length=make.length(256, 256))
        for prefix in make.texts(make.num(64), 2048)
        for question in make.texts(16, 128)
    ]
    make.random.shuffle(bodies)
    return Workload("shared prefixes", bodies, 64)


def in_batch(make: Maker) -> Workload:
    """Programs that send one prefix thirty-two times at the same moment."""

    def body(prefix: Ids, questions: list[Ids]) -> Body:
        def run(context: ProgramContext) -> Program:
            plants, branches = context.begin(prefix).fork(len(questions))
            pairs = zip(branches, questions, strict=True)
            yield [*plants, *(branch.write(text, 1) for branch, text in pairs)]

        return run

    prefixes = make.texts(make.num(10), 1024)
    return Workload("in-batch", [body(prefix, make.texts(32, 128)) for prefix in prefixes], 10)


def city(make: Maker) -> Workload:
    """A document, and five fields of a record in a row, with fixed text between them."""
    head, keys = make.ids(40), make.texts(5, 4, 8)

    def body(document: Ids, lengths: list[int]) -> Body:
        def run(context: ProgramContext) -> Program:
            draft = context.begin(head, document)
            for key, length in zip(keys, lengths, strict=True):
                yield from draft.write(key, length)

        return run

    documents = make.texts(make.num(20), 600, 1500)
    return Workload("json city", [body(text, make.lengths(5, 8, 24)) for text in documents])


def nothing_shared(make: Maker) -> Workload:
    """Calls that have nothing in common."""
    texts = make.texts(make.num(100), 50, 400)
    bodies = [answering(text, length=make.length(50, 250)) for text in texts]
    return Workload("nothing shared", bodies)


SHAPES = (
    mmlu,
    hellaswag,
    gsm8k,
    react,
    generative_agents,
    tree_of_thought,
    deep_tree,
    skeleton_of_thought,
    judge,
    multi_chain,
    chat,
    long_chat,
    rag,
    shared_prefixes,
    in_batch,
    city,
)
