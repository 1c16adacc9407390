"""The pages are true: their programs run on the embedded model and print what they say, links lead
somewhere.

The Python of a page runs from top to bottom in a process of its own, as a reader would run it (a
fork of one that has imported the packages, which takes seconds); of the README each block is
independent. What a block prints is in comments behind its prints, or by
a block of the language `text` below it. Where a page names the URL of a server, there is one.
"""

from __future__ import annotations

import json
import re
import runpy
import shutil
import subprocess
import sys
from collections.abc import Callable, Iterator
from importlib.util import find_spec
from pathlib import Path
from subprocess import PIPE
from typing import NamedTuple, TypeAlias

import pytest

from forkroot.adapters.http.server.runtime import Runtime
from forkroot.core.local import LocalBackend
from forkroot.core.model.hub.folders import model_folder

from .serving import serving

pytestmark = pytest.mark.timeout(300)

ROOT = Path(__file__).resolve().parents[1]
PAGES = [
    "README.md",
    *sorted(path.relative_to(ROOT).as_posix() for path in (ROOT / "docs").rglob("*.md")),
]
TEXTS = [*PAGES, "CHANGELOG.md", "CONTRIBUTING.md", "models/tiny/EVAL.md"]
OURS = "(?:adapters|benchmarks|core|docs|examples|kernels|models|tests)"
NOTEBOOKS = sorted((ROOT / "docs/notebooks").glob("*.ipynb"))
URL = "http://127.0.0.1:30000"
SEEING = "docs/images.md"  # whose server has the model that sees
FRAMEWORKS = ("dspy", "guidance", "langchain_core", "openai")
NOT_RUN = {  # by their first lines
    "import sglang": "README.md: it needs SGLang, as tests/adapters/http/sglang does",
    "# several engines behind one router": "docs/replicas.md: its servers are not there",
    "# a fleet that changes": "docs/replicas.md: nor are these",
    "# on a cluster of Ray": "docs/replicas.md: it needs a cluster, as tests/adapters/ray does",
    "# a job on a cluster of Ray": "docs/replicas.md: it needs a cluster, too",
}
MARK = "\x1e"
PACKAGES = (
    *("forkroot.adapters.native", "forkroot.adapters.http.client", "forkroot.core.local"),
    *FRAMEWORKS,
)
RUN = f"""
import json, os, sys
from importlib import import_module
from importlib.util import find_spec
for name in {PACKAGES!r}:
    if find_spec(name.partition(".")[0]):
        import_module(name)
import_module("forkroot.core.model.checkpoint.loops").load_compiler("cpu")
for line in sys.stdin:
    blocks, *files = json.loads(line)
    pid = os.fork()
    if not pid:
        break
    print(os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]), files[0], flush=True)
else:
    sys.exit()
os.chdir(os.path.dirname(files[0]))
for number, file in enumerate((os.devnull, *files)):
    os.dup2(os.open(file, os.O_RDWR | os.O_CREAT), number)
one = {{"__name__": "page"}}
for place, source, is_alone in blocks:
    exec(compile(source, place, "exec"), {{"__name__": "page"}} if is_alone else one)
    print(end={MARK!r}, flush=True)
"""


class Block(NamedTuple):
    """A block of a page. place: as "README.md:34". below: the next block of its page."""

    place: str
    language: str
    source: str
    below: Block | None

    def has_printed(self, out: str) -> bool:
        """Whether the page has exactly what it printed."""
        if self.below is not None and self.below.language == "text" and self.below.source != out:
            return False
        printed = iter([line.split() for line in out.splitlines()])
        expected = re.findall(r"^ *print\(.*\)  # (.+)$", self.source, re.MULTILINE)
        return all(line.split() in printed for line in expected)  # in this order


class Ran(NamedTuple):
    """What a process ended with, and what it printed."""

    status: int
    out: str
    errors: str


Run: TypeAlias = Callable[[list[tuple[str, str, bool]]], Ran]


def blocks(page: str) -> list[Block]:
    text = (ROOT / page).read_text("utf-8")
    fences = re.finditer(r"^( *)```(\w*)\n(.*?)^ *```$", text, re.DOTALL | re.MULTILINE)
    found: list[Block] = []
    for fence in reversed(list(fences)):
        lines = fence[3].splitlines(keepends=True)
        source = "".join(line.removeprefix(fence[1]) for line in lines)
        place = f"{page}:{text[: fence.start()].count(chr(10)) + 1}"
        found.insert(0, Block(place, fence[2], source, found[0] if found else None))
    return found


def programs(page: str) -> list[Block]:
    return [it for it in blocks(page) if it.language == "python" and is_run(it)]


def is_run(block: Block) -> bool:
    return block.source.partition("\n")[0] not in NOT_RUN


WITH_PROGRAMS = [page for page in PAGES if programs(page)]


@pytest.fixture(scope="module")
def url() -> Iterator[str]:
    """Of a server of the embedded model."""
    with (
        LocalBackend.from_folder("tiny", dtype="float32", num_slots=20_000) as backend,
        serving(Runtime(backend, backend.tokenizer, ("tiny",))) as url,
    ):
        yield url


@pytest.fixture(scope="module")
def seeing_url(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """Of a server of the embedded model that sees."""
    for name in ("PIL", "transformers"):
        pytest.importorskip(name)
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("XDG_CACHE_HOME", str(tmp_path_factory.mktemp("cache")))
        folder = model_folder("tiny-vision")
    with (
        LocalBackend.from_folder(folder, dtype="float32", num_slots=20_000) as backend,
        serving(Runtime(backend, backend.tokenizer, ("tiny-vision",))) as url,
    ):
        yield url


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Run]:
    """run([(place, source, is_alone), ...]): these blocks, in one process."""
    command, pipes = [sys.executable, "-c", RUN], {"stdin": PIPE, "stdout": PIPE}
    with subprocess.Popen(command, **pipes, text=True) as process:
        assert process.stdin is not None and process.stdout is not None
        answers, questions = process.stdout, process.stdin

        def run(given: list[tuple[str, str, bool]]) -> Ran:
            folder = tmp_path_factory.mktemp("page")
            files = folder / "out", folder / "errors"
            print(json.dumps([given, *map(str, files)]), file=questions, flush=True)
            found = (line.rstrip().partition(" ") for line in answers)  # or of one given up
            status = next(int(status) for status, _, file in found if file == str(files[0]))
            return Ran(status, *(file.read_text("utf-8") for file in files))

        yield run


def test_pages_have_programs_and_few_are_not_run() -> None:
    assert {"README.md", "docs/language.md", "docs/server.md"} <= set(WITH_PROGRAMS)
    left = [it for page in PAGES for it in blocks(page) if not is_run(it)]
    expected = [f"{it.place.partition(':')[0]}: " for it in left]
    assert len(expected) == len(NOT_RUN)
    assert all(map(str.startswith, NOT_RUN.values(), expected))


@pytest.mark.parametrize("page", WITH_PROGRAMS)
def test_the_programs_of_a_page_run_and_print_what_it_says(
    page: str, run: Run, request: pytest.FixtureRequest
) -> None:
    found = programs(page)
    for name in FRAMEWORKS:
        if find_spec(name) is None and any(name in block.source for block in found):
            pytest.skip(f"needs {name}")
    url: str = request.getfixturevalue("seeing_url" if page == SEEING else "url")
    is_alone = page == "README.md"
    given = [(it.place, it.source.replace(URL, url), is_alone) for it in found]
    done = run(given)
    assert done.status == 0, done.errors
    printed = done.out.split(MARK)
    for block, out in zip(found, printed, strict=False):
        assert bool(out.strip()) is ("print(" in block.source), block.place
        assert block.has_printed(out), f"{block.place} printed {out}"


def test_requests_by_curl_are_answered_as_the_page_says(url: str) -> None:
    if shutil.which("curl") is None:
        pytest.skip("needs curl")
    requests = [block for block in blocks("docs/server.md") if block.source.startswith("curl ")]
    assert requests
    for block in requests:
        command = block.source.replace(URL, url)
        done = subprocess.run(["bash", "-c", command], capture_output=True, text=True, check=True)
        assert block.below is not None
        assert texts(json.loads(done.stdout)) == texts(json.loads(block.below.source)), block.place


def texts(answer: dict[str, object]) -> list[str]:
    """Of a completion or a chat."""
    choices = answer["choices"]
    assert isinstance(choices, list)
    return [it["text"] if "text" in it else it["message"]["content"] for it in choices]


@pytest.mark.parametrize("page", TEXTS)
def test_the_links_of_a_page_lead_somewhere(page: str) -> None:
    text = (ROOT / page).read_text("utf-8")
    links = re.findall(r"\]\(([^)\s]+)\)", re.sub(r"```.*?```", "", text, flags=re.DOTALL))
    near = [link.partition("#") for link in links if "://" not in link]
    faults = [
        f"{page}: {path}#{anchor}"
        for path, _, anchor in near
        if not is_there((ROOT / page).parent / path if path else ROOT / page, anchor)
    ]
    assert faults == []


@pytest.mark.parametrize("page", TEXTS)
def test_the_files_that_a_page_names_are_there(page: str) -> None:
    text = re.sub(r"```.*?```", "", (ROOT / page).read_text("utf-8"), flags=re.DOTALL)
    spans = re.findall(r"`([^`\n]+)`", text)
    paths = [path for span in spans for path in re.findall(rf"(?<![\w/.]){OURS}/[\w/.-]*", span)]
    assert [path for path in paths if not (ROOT / path).exists()] == []
    modules = [name for span in spans for name in re.findall(r"python -m forkroot\.([\w.]+)", span)]
    files = [ROOT / f"{name.replace('.', '/')}.py" for name in modules if name.islower()]
    assert [
        str(file)
        for file in files
        if not (file.exists() or (file.with_suffix("") / "__main__.py").exists())
    ] == []


def test_the_readme_says_how_each_package_that_its_programs_import_is_installed() -> None:
    text = (ROOT / "README.md").read_text("utf-8")
    source = "".join(block.source for block in blocks("README.md") if block.language == "python")
    names = set(re.findall(r"^(?:from|import) (\w+)", source, re.MULTILINE))
    names -= sys.stdlib_module_names
    assert names >= {"openai", "dspy", "sglang"}
    assert [name for name in names if not re.search(rf"pip install .*\b{name}\b", text)] == []
    assert re.search(r"pip install .*\bopenai\b", (ROOT / "docs/server.md").read_text("utf-8"))


def test_contributing_links_to_the_modules_of_each_part() -> None:
    text = (ROOT / "CONTRIBUTING.md").read_text("utf-8")
    for part in ("adapters", "fsm", "kernels", "model"):
        assert f"(docs/structure/{part}.md" in text


@pytest.mark.parametrize("notebook", NOTEBOOKS, ids=lambda path: path.name)
def test_a_notebook_prints_what_is_saved_in_it(notebook: Path, run: Run) -> None:
    cells = [it for it in json.loads(notebook.read_text("utf-8"))["cells"] if "outputs" in it]
    assert cells
    places = [f"{notebook.name}: cell {it['execution_count']}" for it in cells]
    sources = ["".join(it["source"]) for it in cells]
    given = [(place, source, False) for place, source in zip(places, sources, strict=True)]
    done = run(given)
    assert done.status == 0, done.errors
    saved = ["".join(line for it in cell["outputs"] for line in it["text"]) for cell in cells]
    assert done.out.split(MARK)[:-1] == saved


def test_every_page_is_in_the_navigation_of_the_site() -> None:
    text = (ROOT / "mkdocs.yml").read_text("utf-8")
    excluded = re.findall(r"^  (\S+\.md)$", text, re.MULTILINE)
    listed = re.findall(r"^ +- .+: (\S+\.md)$", text.partition("\nnav:\n")[2], re.MULTILINE)
    docs = ROOT / "docs"
    pages = [page.relative_to(docs).as_posix() for page in docs.rglob("*.md")]
    assert sorted(listed + excluded) == sorted(pages)


def test_the_page_of_settings_is_what_its_script_writes() -> None:
    script = runpy.run_path(str(ROOT / "docs/settings.py"))
    assert (ROOT / "docs/settings.md").read_text("utf-8") == script["page"]()


def is_there(target: Path, anchor: str) -> bool:
    if not target.exists() or not anchor:
        return target.exists()
    heads = re.findall(r"^#+ (.+)$", target.read_text("utf-8"), re.MULTILINE)
    return anchor in [re.sub(r"[^\w\- ]", "", head.lower()).replace(" ", "-") for head in heads]
