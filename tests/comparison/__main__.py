# SPDX-License-Identifier: Apache-2.0
"""`python -m tests.comparison --kueue BINARY [COURSE…]`: what this project's manager and Kueue's own write in a course.

After each step it prints the lines that only one of both has (`docs/reference/beside-kueue.md` says which are meant to
differ). Both run on embedded API servers, one after the other. The binary is that of Kueue 0.17.0 (`go install
sigs.k8s.io/kueue/cmd/kueue@v0.17.0`), which does not start without a certificate in `/etc/kueue/metrics/certs`.
"""

from __future__ import annotations

import argparse
import sys
import tempfile
from pathlib import Path
from typing import Final

import anyio

from multikueue.kube.rest.client import KubeClient
from tests.bench.queueing.hubs import running_bench_hub
from tests.comparison.courses import COURSES, Course
from tests.comparison.hub import NAMESPACE, ComparedHub
from tests.comparison.shown import differences, events, lines
from tests.support.managers import make_namespace

_QUIET_SECONDS: Final = 1.2
_MOST_SECONDS: Final = 9.0
_LOOK_SECONDS: Final = 0.3
_OLD_REASONS: Final = {"UnadmittedWorkloadsObservability": False}


async def play(course: Course, *, kueue: Path | None) -> list[tuple[str, list[str]]]:
    """What is shown after each step of the course."""
    configuration = {"integrations": {"frameworks": ["batch/job"]}, **course.configuration}
    if kueue is None:
        # Kueue 0.17.0 does not wait for pods by default, and has the reasons from before this gate.
        off = {} if "waitForPodsReady" in configuration else {"DisableWaitForPodsReady": True}
        configuration["featureGates"] = _OLD_REASONS | off
    with tempfile.TemporaryDirectory(prefix="mk-comparison-") as folder:
        made = running_bench_hub(
            Path(folder), binaries=False, configuration=configuration, kueue=kueue, job_integrations=True
        )
        async with made as hub, hub.cluster.client() as client:
            await make_namespace(client, NAMESPACE)
            shown, known = [], set[str]()
            async for look in course.steps(ComparedHub(client)):
                found = await _settled(client, seconds=look.seconds)
                told = await events(client, NAMESPACE)
                shown.append((look.after, [*found, *sorted(told - known)]))
                known |= told
            return shown


async def _settled(client: KubeClient, *, seconds: float) -> list[str]:
    """What is shown once it has not changed for a moment, or after the most that is waited."""
    last: list[str] = []
    began = since = anyio.current_time()
    while (now := anyio.current_time()) - began < _MOST_SECONDS + seconds:
        found = await lines(client, NAMESPACE)
        if found != last:
            last, since = found, now
        if now - began >= seconds and now - since >= _QUIET_SECONDS:
            break
        await anyio.sleep(_LOOK_SECONDS)
    return last


async def compare(names: list[str], kueue: Path) -> None:
    """Print the differences of each course."""
    for name in names:
        theirs, ours = await play(COURSES[name], kueue=kueue), await play(COURSES[name], kueue=None)
        print(f"{name}:", flush=True)
        for (after, one), (_, other) in zip(theirs, ours, strict=True):
            found = list(differences(one, other))
            print(f"  {after}: {'no difference' if not found else ''}".rstrip())
            print(*(f"    {line}" for line in found), sep="\n", end="\n" if found else "")


def main() -> int:
    """Play what the command line says."""
    flags = argparse.ArgumentParser(prog="python -m tests.comparison", description=__doc__.partition("\n")[0])
    flags.add_argument("--kueue", type=Path, required=True, metavar="BINARY", help="Kueue's own manager")
    flags.add_argument("courses", nargs="*", metavar="COURSE", help=f"of {', '.join(COURSES)}; all by default")
    options = flags.parse_args()
    if unknown := sorted(set(options.courses) - COURSES.keys()):
        flags.error(f"no such course: {', '.join(unknown)}; there are {', '.join(COURSES)}")
    anyio.run(compare, options.courses or list(COURSES), options.kueue)
    return 0


if __name__ == "__main__":
    sys.exit(main())
