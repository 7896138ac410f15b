"""From a plan to the kernels that are printed: the group's own, and the one that debug mode runs before it.

Both are judged here, so that nothing is printed that is not shown to be safe.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from kgen.kernel.debug import Watch, watch
from kgen.kernel.ir import Kernel
from kgen.kernel.judge import judge
from kgen.kernel.lower import lower
from kgen.kernel.passes import ordered
from kgen.plan.plan import Plan


@dataclass(frozen=True, slots=True)
class Made:
    """A plan and its kernels."""

    plan: Plan
    kernel: Kernel
    watch: Watch


def make(plan: Plan, taken: Iterable[str]) -> Made:
    """The kernels of a plan; `taken` are names that their variables may not have.

    Raises:
        UnsafeError: something that was proved of the spec can't be shown of a kernel, a fault of kgen.
    """
    taken = frozenset(taken)
    kernel = ordered(lower(plan), taken)
    judge(kernel, plan.group)
    check = watch(plan, taken)
    judge(check.kernel, check.group, check.buffers)
    return Made(plan, kernel, check)
