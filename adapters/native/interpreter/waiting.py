"""What is submitted to one stream and waits for values of others: texts, variables, gates."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Sequence

from ..language.expressions import Constant, Expression
from .context import Context
from .slots import Slot
from .stream import Step, countdown
from .variables import Variables


class Waiting(ABC):
    """A stream and its variables, and the steps that wait for slots or fill them. `_run` gives a
    node its meaning."""

    def __init__(self, context: Context, is_born: bool) -> None:
        self.context = context
        self.stream = context.open(is_born)
        self.variables = Variables()

    @abstractmethod
    def _run(self, node: Expression) -> bool:
        """Give a node its meaning; whether it has ended."""

    def submit_text(self, slots: Sequence[Slot], text: Callable[[], str]) -> None:
        """Append `text()`, which is called once all slots have ended; the first error of one of
        them becomes that of the stream."""

        def add() -> bool:
            found = text()
            self.context.spend(len(found))
            return self._run(Constant(found))

        def settle() -> None:
            error = next((slot.error for slot in slots if slot.error is not None), None)
            try:
                if error is None:
                    add()
            except Exception as failure:
                error = failure
            self.stream.resume() if error is None else self.stream.fail(error)

        def run() -> bool:
            if all(slot.is_done and slot.error is None for slot in slots):
                return add()
            arrive = countdown(len(slots), settle)
            for slot in slots:
                slot.when_done(arrive)
            return False

        self.submit_step(run)

    def publish(self, name: str) -> Slot:
        """The variable as it is after all that was submitted, once that has ended."""
        slot = Slot()

        def run() -> bool:
            slot.set(self.variables.values[name])
            return True

        self.submit_step(run, skip=slot.fail)
        return slot

    def submit_gate(self, slot: Slot) -> None:
        """Take no further step before the slot has ended, well or not."""

        def run() -> bool:
            if slot.is_done:
                return True
            slot.when_done(lambda _: self.stream.resume())
            return False

        self.submit_step(run)

    def submit_slot(self) -> Slot:
        """Ends when all that was submitted has ended."""
        slot = Slot()

        def run() -> bool:
            slot.set(None)
            return True

        self.submit_step(run, skip=slot.fail)
        return slot

    def submit_step(
        self,
        run: Callable[[], bool],
        names: Iterable[str] = (),
        skip: Callable[[BaseException], object] = lambda error: None,
        item: object = None,
    ) -> None:
        """Run a step that sets the variables `names`; as `Step`. Raises ProgramError at the end."""
        self.stream.check_open()
        with self.stream.lock:
            for name in names:
                self.variables.expect(name)
        self.stream.submit(Step(run, skip, item))
