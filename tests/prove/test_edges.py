"""Specs at the edge of each proof: what is accepted has no bad world, and a proof that is too weak is found out."""

from __future__ import annotations

import dataclasses

import edges
import pytest
from edge_specs import FAMILIES

from kgen.kernel import make
from kgen.prove import places, prove, ranges, reading
from kgen.prove.numbers import ONE, Numbers, add, both

SPECS = 3  # of each family
ENOUGH = 60  # specs of a family in which a weak proof must show


@pytest.fixture(autouse=True)
def few_worlds(monkeypatch: pytest.MonkeyPatch) -> None:
    """Fewer worlds of a spec than offline."""
    monkeypatch.setattr(edges, "RUNS", 100)


def seeds(family: str, count: int) -> list[int]:
    """Seeds whose specs are of a family."""
    names = sorted(FAMILIES)
    return [names.index(family) + len(names) * at for at in range(count)]


@pytest.mark.parametrize("family", sorted(FAMILIES))
def test_no_verdict_is_wrong(family: str) -> None:
    verdicts = [edges.tried(seed) for seed in seeds(family, SPECS)]
    for each in verdicts:
        assert each.outcome not in ("unsound", "untrue"), f"{each.text}{each.bad}{each.said}"
        assert each.outcome != "invalid", each.said


def goals(change):
    """What has to be shown, but for a part of it."""
    whole = prove._Prover._goals

    def fewer(self, obligation):
        found = whole(self, obligation)
        return found if found is None else change(obligation, found)

    return [(prove._Prover, "_goals", fewer)]


def end(side: int):
    """Of each index one end is not looked at: 0 the lower, 1 the upper one."""

    def change(each, found):
        places = each.kind in ("load", "store")
        return [ONE if places and at % 2 == side else goal for at, goal in enumerate(found)]

    return goals(change)


def unguarded(self, store):
    return COVERS(self, dataclasses.replace(store, when=None))


COVERS = places.Places.covers
WEAK = {
    "no_lower_end": ("bounds", "out of bounds", end(0)),
    "no_upper_end": ("bounds", "out of bounds", end(1)),
    "no_upper_end_of_places": ("stores", "out of bounds", end(1)),
    "no_upper_end_of_lists": ("lists", "out of bounds", end(1)),
    "longer_by_one": (
        "ends",
        "out of bounds",
        goals(lambda _, found: [*found[:1], *(add(goal, ONE) for goal in found[1:])]),
    ),
    "pages": ("pages", "out of bounds", goals(lambda _, found: [add(g, ONE) for g in found])),
    "no_type": ("overflow", "overflow", goals(lambda e, f: [] if e.kind == "number" else f)),
    "type_by_one": (
        "overflow",
        "overflow",
        goals(lambda e, f: [add(g, ONE) for g in f] if e.kind == "number" else f),
    ),
    "no_extent": (
        "extents",
        "negative extent",
        goals(lambda e, f: [] if e.kind == "extent" else f),
    ),
    "any_rest_is_a_digit": (
        "digits",
        "collision",
        [(places.Places, "_within", lambda *_: True)],
    ),
    "any_rest_is_packed": (
        "packing",
        "collision",
        [(places.Places, "_within", lambda *_: True)],
    ),
    "every_element_is_distinct": (
        "distinct",
        "collision",
        [(places.Places, "determined", lambda self, *_: frozenset(self.group.extents))],
    ),
    "who_wins": (
        "winners",
        "collision",
        [(places.Places, "determined", lambda self, *_: frozenset(self.group.extents))],
    ),
    "all_stores_are_apart": ("apart", "collision", [(places.Places, "apart", lambda *_: True)]),
    "conditions_fill": ("coverage", "partly stored", [(places.Places, "covers", unguarded)]),
    "all_is_filled": ("coverage", "partly stored", [(places, "_check_covered", lambda *_: None)]),
    "no_race": (
        "races",
        "kernel: RaceError",
        [
            (places.Places, "shared", lambda self, *_: frozenset(self.group.extents)),
            (make, "judge", lambda *_: None),  # which would see it first
        ],
    ),
    "no_divisor": (
        "division",
        "division by zero",
        [(ranges, "_check_divisor", lambda *_: None)],
    ),
    "all_is_kept": ("kept", "values", [(prove._Prover, "keeps", lambda *_: True)]),
    "nothing_is_undefined": ("distinct", "undefined", [(places, "_undefined", lambda *_: [])]),
    "or_is_and": ("bounds", "out of bounds", [(reading, "either", both)]),
    "quotients_by_one": (
        "pages",
        "out of bounds",
        [
            (
                Numbers,
                "_divided",
                lambda *a, divided=Numbers._divided, **k: (add(g, ONE) for g in divided(*a, **k)),
            )
        ],
    ),
}


@pytest.mark.parametrize("name", WEAK)
def test_a_weak_proof_is_found_out(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    family, kind, changes = WEAK[name]
    for holder, attribute, change in changes:
        monkeypatch.setattr(holder, attribute, change)
    found = set()
    for seed in seeds(family, ENOUGH):
        verdict = edges.tried(seed)
        if verdict.outcome == "unsound":
            assert verdict.bad is not None
            found.add(verdict.bad.kind)
            if verdict.bad.kind == kind:
                return
    pytest.fail(f"only {found}")
