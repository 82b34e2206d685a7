# SPDX-License-Identifier: Apache-2.0
"""Every write of managers and agents, with every failure: what comes of it in the end.

    python -m tests.simulation.scripts.write_failures
    python -m tests.simulation.scripts.write_failures --course push --only _reserve --log

Each course is played without a failure first, which tells what is written and how all looks in the end. It is played
again for each write that no course before it has made, with each failure of that write, once and for a minute; with
`--three` only with three of these failures.
"""

from __future__ import annotations

import argparse
import asyncio
import ctypes
import logging
import os
import re
import sys
import traceback
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any, Final

import orjson

from devcluster.apiserver.server import ApiServer
from tests.simulation.scripts.courses import COURSES, Course, settings
from tests.simulation.scripts.failing import EVERY_FAILURE, THREE_FAILURES, Case, Write, cases
from tests.simulation.scripts.stage import NeverCame, Stage
from tests.simulation.scripts.write_sites import UNPLAYED
from tests.simulation.seeds.play import Outcome, make_repeatable
from tests.simulation.seeds.processes import outcomes
from tests.simulation.world import federation, shortcuts
from tests.simulation.world.network import WriteFailure
from tests.simulation.world.virtual_time import VirtualLoop

ADDR_NO_RANDOMIZE: Final = 0x0040000
Servers = dict[str, ApiServer]


@dataclass(frozen=True, slots=True)
class Played:
    """How a course ended."""

    problem: str
    state: tuple[str, ...]
    writes: tuple[Write, ...]
    seconds: float
    struck: int


def play_course(
    course: Course,
    servers: Servers,
    *,
    case: Case | None = None,
    want: tuple[str, ...] | None = None,
    log: bool = False,
) -> Played:
    """One course in this process, which is to end with it."""
    loop = VirtualLoop()
    asyncio.set_event_loop(loop)
    shortcuts.take()
    state: tuple[str, ...] = ()
    stage: Stage | None = None
    problem = ""

    async def run() -> None:
        nonlocal stage, state
        stage = Stage(
            servers,
            loop=loop,
            workers=course.workers,
            pushed=course.pushed,
            dispatcher=course.dispatcher,
            case=case,
            configuration=settings(course.dispatcher, retention=course.retention),
        )
        if log:
            stage.writes.trace = lambda line: print(f"{loop.time():9.3f} {line}")
        await course.script(stage)
        state = await stage.settled(want)

    try:
        loop.run_until_complete(run())
    except NeverCame as error:
        problem = f"never: {error}"
    except BaseException:
        problem = traceback.format_exc()
    if not problem and case is not None:
        if not stage or not stage.writes.struck:
            problem = "the write was not made again"
        elif want is not None and state != want:
            problem = differences(want, state)
    seen = tuple(stage.writes.seen) if stage else ()
    return Played(problem, state, seen, loop.time(), stage.writes.struck if stage else 0)


def differences(want: tuple[str, ...], have: tuple[str, ...]) -> str:
    """Where two states differ, field by field."""
    found = []
    before, after = (dict(_named(line) for line in state) for state in (want, have))
    for name in sorted(before.keys() | after.keys()):
        if name not in after:
            found.append(f"{name} is missing")
        elif name not in before:
            found.append(f"{name} is left")
        else:
            found += _different(name, before[name], after[name])
    return "; ".join(found)


def _named(line: str) -> tuple[str, Any]:
    server, collection, key, value = line.split(" ", 3)
    return f"{server} {collection} {key}", orjson.loads(value)


def _different(where: str, want: Any, have: Any) -> list[str]:
    if isinstance(want, dict) and isinstance(have, dict):
        return [
            line
            for name in sorted(want.keys() | have.keys())
            for line in _different(f"{where}.{name}", want.get(name), have.get(name))
        ]
    if isinstance(want, list) and isinstance(have, list) and len(want) == len(have):
        return [
            line
            for index, (one, other) in enumerate(zip(want, have, strict=True))
            for line in _different(f"{where}[{index}]", one, other)
        ]
    return [] if want == have else [f"{where}: wanted {want!r}, got {have!r}"]


@dataclass(frozen=True, slots=True)
class Plan:
    """What is written in each course, for the first time and at all, and how each ends."""

    writes: Mapping[str, tuple[Write, ...]]
    all_writes: Mapping[str, tuple[Write, ...]]
    states: Mapping[str, tuple[str, ...]]

    def of(self, courses: Iterable[str] | None, only: str) -> Plan:
        """A part of it."""
        names = tuple(courses or self.writes)

        def part(of: Mapping[str, tuple[Write, ...]]) -> dict[str, tuple[Write, ...]]:
            return {name: tuple(write for write in of[name] if only in str(write)) for name in names}

        return Plan(part(self.writes), part(self.all_writes), self.states)


Run = tuple[Course, Case | None, tuple[str, ...] | None]


def each(run: Sequence[Run], servers: Servers, *, jobs: int) -> Iterator[tuple[int, Played]]:
    """Play each in a process of its own."""

    def played(number: int) -> Outcome:
        course, case, want = run[number]
        found = play_course(course, servers, case=case, want=want)
        kept = found if case is None else replace(found, state=(), writes=())
        return Ended(number, found.problem, (), found.seconds, kept)

    for outcome in outcomes(played, range(len(run)), jobs=jobs):
        if isinstance(outcome, Ended):
            yield outcome.seed, outcome.played
        else:
            yield outcome.seed, Played(outcome.problem, (), (), 0.0, 0)


@dataclass(frozen=True, slots=True)
class Ended(Outcome):
    """An outcome that carries what was played."""

    played: Played


def _built() -> Servers:
    return {**federation.build_servers(), "k1": federation.build_queued_worker("k1")}


def prepared() -> Servers:
    """The servers on which all is played; what is loaded and cached on its first use is there for all."""
    make_repeatable()
    for name in ("pull", "push"):
        play_course(COURSES[name], _built())
    make_repeatable()
    shortcuts.forget()
    return _built()


def plan(servers: Servers, *, jobs: int, names: tuple[str, ...] = tuple(COURSES)) -> Plan:
    """Play all courses without a failure. Raises `AssertionError` when one does not come to its end."""
    found: dict[str, Played] = {}
    for number, played in each([(COURSES[name], None, None) for name in names], servers, jobs=jobs):
        assert not played.problem, f"{names[number]}: {played.problem}"
        found[names[number]] = played
    known: set[Write] = set()
    writes: dict[str, tuple[Write, ...]] = {}
    for name in names:
        writes[name] = tuple(write for write in found[name].writes if write not in known)
        known |= set(writes[name])
    every = {name: found[name].writes for name in names}
    return Plan(writes, every, {name: found[name].state for name in names})


@dataclass(frozen=True, slots=True)
class Result:
    """What came of one case; an empty problem is the state that there is without a failure."""

    course: str
    write: str
    failure: str
    lasting: bool
    problem: str


def results(
    planned: Plan,
    servers: Servers,
    *,
    jobs: int,
    everywhere: bool = False,
    failures: Iterable[tuple[WriteFailure, bool]] = EVERY_FAILURE,
) -> Iterator[Result]:
    """Each write with each failure, in the course that makes it first, or with `everywhere` in all that make it."""
    chosen = planned.all_writes if everywhere else planned.writes
    failures = tuple(failures)
    run: list[Run] = [
        (COURSES[name], case, planned.states[name])
        for name, writes in chosen.items()
        for case in cases(writes, failures)
    ]
    for number, played in each(run, servers, jobs=jobs):
        course, case, _ = run[number]
        assert case is not None
        yield Result(course.name, str(case.write), case.failure.value, case.lasting, played.problem)


def document(found: Iterable[Result]) -> str:
    """docs/reference/write-failures.md."""
    rows: dict[str, dict[tuple[str, bool], str]] = {}
    courses: dict[str, str] = {}
    for result in found:
        courses.setdefault(result.write, result.course)
        rows.setdefault(result.write, {})[result.failure, result.lasting] = "differs" if result.problem else "same"
    lines = [_HEAD, "", "| course | what happens |", "|---|---|"]
    lines += [f"| {course.name} | {course.about} |" for course in COURSES.values()]
    lines += [
        "",
        f"## {len(rows)} writes",
        "",
        "| course | write | " + " | ".join(failure.value for failure in WriteFailure) + " |",
        "|---|---|" + "---|" * len(WriteFailure),
    ]
    order = list(COURSES)
    for write in sorted(rows, key=lambda write: (order.index(courses[write]), write)):
        cells = []
        for failure in WriteFailure:
            once, lasting = (rows[write].get((failure.value, each), "") for each in (False, True))
            cells.append(once if once == lasting else f"{once} / {lasting}")
        lines.append(f"| {courses[write]} | {write} | {' | '.join(cells)} |")
    return "\n".join([*lines, "", unplayed_section()])


def listed_writes() -> set[str]:
    """The writes that the document lists."""
    rows = re.findall(r"^\| [a-z-]+ \| ((?:manager|agent) -> [^|]+) \|", DOCUMENT.read_text(), re.MULTILINE)
    return set(rows)


def unplayed_section() -> str:
    """The end of the document: the functions that write and that no course plays."""
    lines = [_UNPLAYED_HEAD, "", "| function | how a failed write is retried |", "|---|---|"]
    lines += [f"| {site} | {why} |" for site, why in sorted(UNPLAYED.items())]
    return "\n".join([*lines, ""])


DOCUMENT: Final = Path(__file__).parents[3] / "docs" / "reference" / "write-failures.md"
_HEAD: Final = """# When a write fails

Every background write of the manager and the agents, and the state of the hub and the workers in the end if it fails:
once, and every time for a minute. Generated by `python -m tests.simulation.scripts.write_failures --document`;
`make writes` and `tests/security/test_write_failures.py` check it.

Each course below is the life of some Jobs on real managers and agents in virtual time. It runs once without a failure,
to record the writes and the final state. Then it runs again for each write that no earlier course has made, with that
write failing:

| failure | what the process sees |
|---|---|
| 409, 429, 500 | that response; the server has stored nothing |
| no answer, not done | no response before the deadline of the request; the server has stored nothing |
| answer lost, done | the connection ends without a response; the server has stored the write |

`same` means that the final objects of all clusters are the same as without the failure, except uids, versions, times,
counters of reports and certificates; if once and for a minute differ, both are given. Requests are retried by
`multikueue/kube/rest/retries.py`; a reconciler that fails is retried with a back-off
(`multikueue/kube/runtime/controller.py`). A write is named by the process, the cluster that it goes to, the verb, the
resource, the field manager, and the function that sends it, with what it changes in the status of a Workload. A
TokenReview, SubjectAccessReview, SelfSubjectReview or SelfSubjectRulesReview is a create, and the server stores none.

## Courses
"""
_UNPLAYED_HEAD: Final = """## Writes that no course makes

Every other function that writes to an API server, found in the source by `tests/simulation/scripts/write_sites.py`. The
effect of a failure is known from the code only."""


def main() -> int:
    """Play what the command line says."""
    flags = argparse.ArgumentParser(prog="python -m tests.simulation.scripts.write_failures")
    flags.add_argument("--jobs", type=int, default=os.cpu_count() or 1, help="processes at a time")
    flags.add_argument("--course", choices=sorted(COURSES), action="append", help="only cases of these courses")
    flags.add_argument("--all", action="store_true", help="each write in every course that makes it")
    flags.add_argument("--three", action="store_true", help="409 once, 500 for a minute, a lost answer once; no others")
    flags.add_argument("--only", default="", help="only cases whose text contains this")
    flags.add_argument("--json", type=Path, help="write the results there")
    flags.add_argument("--document", action="store_true", help=f"write {DOCUMENT.name}")
    flags.add_argument("--check", action="store_true", help=f"fail when {DOCUMENT.name} is not what comes of it")
    flags.add_argument("--log", action="store_true", help="play the first of the cases and print what is written")
    flags.add_argument("--clean", action="store_true", help="play the course without a failure and print its end")
    options = flags.parse_args()
    logging.disable(logging.CRITICAL)
    servers = prepared()
    if options.log:
        logging.disable(logging.NOTSET)
        logging.basicConfig(level=logging.INFO, format="%(name)s %(message)s")
    if options.clean:
        played = play_course(COURSES[options.course[0]], servers, log=options.log)
        print(*played.state, *played.writes, played.problem, sep="\n")
        return 0
    planned = plan(servers, jobs=options.jobs).of(options.course, options.only)
    if options.log:
        return _show(planned, servers)
    found = []
    failures = THREE_FAILURES if options.three else EVERY_FAILURE
    for result in results(planned, servers, jobs=options.jobs, everywhere=options.all, failures=failures):
        found.append(result)
        if result.problem:
            again = "for a minute" if result.lasting else "once"
            print(f"{result.course}: {result.write}: {result.failure} {again}: {result.problem}", flush=True)
    failed = sum(1 for result in found if result.problem)
    writes = len({result.write for result in found})
    print(f"{writes} writes x {len(failures)} failures = {len(found)} cases, {failed} differ")
    if options.json is not None:
        options.json.write_bytes(orjson.dumps([asdict(result) for result in found]))
    if options.document:
        DOCUMENT.write_text(document(found))
    elif options.check and DOCUMENT.read_text() != document(found):
        print(f"{DOCUMENT} is not what comes of it; write it with --document")
        return 1
    return 1 if failed else 0


def _show(planned: Plan, servers: Servers) -> int:
    logging.disable(logging.NOTSET)
    logging.basicConfig(level=logging.INFO, format="%(name)s %(message)s")
    name, case = next((name, case) for name, writes in planned.writes.items() for case in cases(writes))
    print(case)
    played = play_course(COURSES[name], servers, case=case, want=planned.states[name], log=True)
    print(played.problem, played.seconds)
    return 1 if played.problem else 0


if __name__ == "__main__":
    if os.environ.get("PYTHONHASHSEED") != "0":
        # The order of sets, of texts and of objects by their address, would differ from run to run.
        ctypes.CDLL(None).personality(ADDR_NO_RANDOMIZE)
        command = [sys.executable, "-m", "tests.simulation.scripts.write_failures", *sys.argv[1:]]
        os.execve(sys.executable, command, {**os.environ, "PYTHONHASHSEED": "0"})
    sys.exit(main())
