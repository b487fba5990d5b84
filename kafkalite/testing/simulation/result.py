"""How a seed went."""

from __future__ import annotations

from dataclasses import field

from kafkalite.lazy_dataclass import dataclass


@dataclass(slots=True)
class Result:
    """How a seed went. `violation` None: every promise held."""

    seed: int
    violation: str | None
    trace_hash: str
    virtual_s: float
    cpu_s: float
    stats: dict[str, int] = field(default_factory=dict)
    log: list[str] = field(default_factory=list)
    #: What was run, if that is not said by the seed.
    name: str = ""

    @property
    def ok(self) -> bool:
        return self.violation is None

    def line(self) -> str:
        """One line for people."""
        numbers = " ".join(f"{key}={value}" for key, value in self.stats.items())
        verdict = "ok" if self.ok else f"FAILED {self.violation}"
        return (
            f"{self.name or f'seed {self.seed}'}: {verdict}\n  {numbers} virtual={self.virtual_s:.1f}s cpu={self.cpu_s:.1f}s "
            f"trace={self.trace_hash}"
        )


def where(error: BaseException | None) -> str:
    """The innermost place of an exception, for one line."""
    trace = error.__traceback__ if error is not None else None
    if trace is None:
        return ""
    while trace.tb_next is not None:
        trace = trace.tb_next
    code = trace.tb_frame.f_code
    return f" at {code.co_filename.rpartition('kafkalite/')[2]}:{trace.tb_lineno} in {code.co_qualname}"
