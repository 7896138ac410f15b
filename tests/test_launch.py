"""Whether Triton interprets kernels, told by its knobs or, before Triton 3.4, by the environment."""

from __future__ import annotations

import pytest

torch = pytest.importorskip("torch")
triton = pytest.importorskip("triton")

from kgen.runtime import _launch  # noqa: E402


@pytest.mark.parametrize(
    "set_to, interpreted", [("1", True), ("true", True), ("ON", True), ("0", False), ("", False)]
)
def test_without_knobs_the_environment_says_it(
    monkeypatch: pytest.MonkeyPatch, set_to: str, interpreted: bool
) -> None:
    monkeypatch.delattr(triton, "knobs", raising=False)
    monkeypatch.setenv("TRITON_INTERPRET", set_to)
    assert _launch.interpreted() is interpreted


@pytest.mark.skipif(not hasattr(triton, "knobs"), reason="this Triton has none")
def test_knobs_win(monkeypatch: pytest.MonkeyPatch) -> None:
    # First, so that what it is put back to is not read from the changed environment.
    monkeypatch.setattr(triton.knobs.runtime, "interpret", True)
    monkeypatch.setenv("TRITON_INTERPRET", "0")
    assert _launch.interpreted()
