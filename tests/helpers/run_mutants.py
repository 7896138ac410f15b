"""Runs generated equivalence tests on changed copies of a package; prints JSON.

A program: `python run_mutants.py JOBS`, a JSON list of {folder, package, group, files}, where `files` replaces
files of the package in a copy of it. Each job runs in a process forked for it, so that a wild address ends
that process alone. Prints for each job how it ended: `test` where the generated test fails, `watch` where
only the watch on the interpreter's memory sees it, `crash`, or `survived`; and why.
"""

from __future__ import annotations

import json
import os
import shutil
import signal
import sys
import tempfile
import warnings
from pathlib import Path

os.environ["TRITON_INTERPRET"] = "1"

import building
import torch
import triton  # noqa: F401 - once, before the forks
from interpreter_memory import watched

PROCESSES = 2
SECONDS = 60  # for one job


def outcome(number: int, job: dict) -> tuple[str, str]:
    """How the tests of a changed copy end."""
    with tempfile.TemporaryDirectory() as place:
        name = f"mutant_{number + 1}"
        folder = Path(place) / name
        shutil.copytree(
            Path(job["folder"]) / job["package"],
            folder / job["package"],
            ignore=shutil.ignore_patterns("__pycache__"),
        )
        (folder / "__init__.py").write_text("")
        for file, text in job["files"].items():
            (folder / job["package"] / file).write_text(text)
        try:
            building.load(folder, name)
            case = building.case(name, job["package"], job["group"])
            testing = building.testing(name, job["package"])
            testing.check(case, torch.device("cpu"))
        except Exception as error:  # noqa: BLE001 - however it fails, it fails
            return "test", f"{type(error).__name__}: {error}"
        try:
            testing.check(watched(case), torch.device("cpu"))
        except Exception as error:  # noqa: BLE001
            return "watch", f"{type(error).__name__}: {error}"
    return "survived", ""


def main(jobs_file: str) -> None:
    """Run the jobs, a few at a time, and print how each ended."""
    torch.set_num_threads(1)
    warnings.simplefilter("ignore")
    jobs = json.loads(Path(jobs_file).read_text())
    results: list[tuple[str, str]] = [("crash", "")] * len(jobs)
    if jobs:  # what Triton and torch import at the first launch, once before the forks
        outcome(-1, jobs[0] | {"files": {}})
    running: dict[int, tuple[int, int]] = {}
    for number, job in enumerate(jobs):
        if len(running) == PROCESSES:
            _collect(running, results)
        read, write = os.pipe()
        child = os.fork()
        if child == 0:
            try:
                os.close(read)
                signal.alarm(SECONDS)
                end, why = outcome(number, job)
                os.write(write, json.dumps([end, why[:300]]).encode())
            finally:
                os._exit(0)
        os.close(write)
        running[child] = (number, read)
    while running:
        _collect(running, results)
    print(json.dumps(results))


def _collect(running: dict[int, tuple[int, int]], results: list[tuple[str, str]]) -> None:
    child, status = os.wait()
    number, read = running.pop(child)
    with os.fdopen(read) as pipe:
        text = pipe.read()
    results[number] = tuple(json.loads(text)) if text else ("crash", f"status {status}")


if __name__ == "__main__":
    main(sys.argv[1])
