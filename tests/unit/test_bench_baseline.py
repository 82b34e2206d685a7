# SPDX-License-Identifier: Apache-2.0
"""`make bench`: figures, their comparison with a former run, and what it makes of a file that is none."""

from __future__ import annotations

import json
from pathlib import Path
from types import SimpleNamespace

import pytest

from multikueue.core.errors import BadInput
from tests.bench import __main__ as runner
from tests.bench.baseline import FORMAT, Baseline, FormerFigure, read_baseline, written
from tests.bench.comparison import Change, compare, compare_figure
from tests.bench.figure import Better, Figure, FigureShape, figures_of
from tests.bench.report import figure_line, gone_line

ENTRY = {"bench": "engine", "name": "add", "value": 10.0, "unit": "µs"}


def baseline(value: float = 10.0, *, name: str = "add", unit: str = "µs") -> Baseline:
    """A former run of one figure of the engine."""
    return Baseline(figures={("engine", name): FormerFigure(value, unit)})


def document(**changes: object) -> str:
    """A file with one figure."""
    return json.dumps({"format": FORMAT, "taken": "yesterday", "figures": [ENTRY]} | changes)


@pytest.fixture
def one_bench(monkeypatch: pytest.MonkeyPatch) -> SimpleNamespace:
    """The only bench, which can be changed; `runs` counts how often it ran."""

    def run() -> dict[str, object]:
        bench.runs += 1
        return {"adds": {"us": 11.0}, "words": "none", "loads": [1, 2]}

    bench = SimpleNamespace(main=run, runs=0, FIGURES=(FigureShape("adds.*", "µs", 20),))
    monkeypatch.setattr(runner, "benches", lambda: iter([("engine", bench)]))
    return bench


@pytest.mark.parametrize(
    ("value", "better", "met"),
    [
        pytest.param(9, Better.LOWER, True, id="below"),
        pytest.param(10, Better.LOWER, True, id="equal"),
        pytest.param(11, Better.LOWER, False, id="above"),
        pytest.param(11, Better.HIGHER, True, id="above, and more is better"),
        pytest.param(9, Better.HIGHER, False, id="below, and more is better"),
    ],
)
def test_a_bar_is_reached_or_missed(value: float, better: Better, met: bool) -> None:
    assert Figure("rate", value, "/s", 10, better=better).met is met


def test_a_figure_without_a_bar_neither_reaches_nor_misses_it() -> None:
    assert Figure("rate", 9, "/s").met is None


def test_nested_numbers_become_figures_by_the_first_shape_that_matches() -> None:
    values = {"a": {"x_ms": 1, "y": 2.5, "text": "3", "yes": True, "none": None, "list": [4]}, "z_ms": 5}
    shapes = (FigureShape("a.x_ms", "ms", 2), FigureShape("*_ms", "ms"))
    assert list(figures_of(values, shapes)) == [Figure("a.x_ms", 1, "ms", 2), Figure("z_ms", 5, "ms")]
    assert [each.name for each in figures_of(values, ())] == ["a.x_ms", "a.y", "z_ms"]


@pytest.mark.parametrize(
    ("now", "before", "better", "want_ratio", "want"),
    [
        pytest.param(10.0, 10.0, Better.LOWER, 1.0, Change.SAME, id="equal"),
        pytest.param(10.9, 10.0, Better.LOWER, 1.09, Change.SAME, id="within what runs differ by"),
        pytest.param(9.2, 10.0, Better.LOWER, 0.92, Change.SAME, id="less, within what runs differ by"),
        pytest.param(20.0, 10.0, Better.LOWER, 2.0, Change.WORSE, id="more"),
        pytest.param(5.0, 10.0, Better.LOWER, 0.5, Change.BETTER, id="less"),
        pytest.param(20.0, 10.0, Better.HIGHER, 2.0, Change.BETTER, id="more is better"),
        pytest.param(5.0, 10.0, Better.HIGHER, 0.5, Change.WORSE, id="less is worse"),
        pytest.param(0.0, 0.0, Better.LOWER, 1.0, Change.SAME, id="zero both times"),
        pytest.param(3.0, 0.0, Better.LOWER, None, Change.WORSE, id="no ratio to zero"),
        pytest.param(0.0, 3.0, Better.LOWER, None, Change.BETTER, id="zero now"),
        pytest.param(-1.0, 3.0, Better.LOWER, None, Change.BETTER, id="a difference below zero"),
        pytest.param(-3.0, -3.1, Better.LOWER, None, Change.WORSE, id="two differences below zero"),
    ],
)
def test_a_figure_is_compared_with_what_it_was(
    now: float, before: float, better: Better, want_ratio: float | None, want: Change
) -> None:
    row = compare_figure("engine", Figure("add", now, "µs", better=better), baseline(before))
    assert row.change is want
    assert row.ratio == (None if want_ratio is None else pytest.approx(want_ratio))


def test_a_figure_in_another_unit_or_of_another_bench_has_no_ratio() -> None:
    figure = Figure("add", 10.0, "ms")
    assert [(row.change, row.ratio) for row in compare("engine", [figure], baseline())] == [(Change.OTHER_UNIT, None)]
    assert [(row.change, row.ratio) for row in compare("kube", [figure], baseline())] == [(Change.NEW, None)]


def test_what_only_the_former_run_had_is_listed_as_gone() -> None:
    former = Baseline(
        figures={
            ("engine", "add"): FormerFigure(10.0, "µs"),
            ("engine", "remove"): FormerFigure(9.0, "µs"),
            ("kube", "decode"): FormerFigure(13.0, "µs"),
        }
    )
    rows = list(compare("engine", [Figure("add", 10.0, "µs"), Figure("new", 1.0)], former))
    assert [(row.name, row.change) for row in rows] == [
        ("add", Change.SAME),
        ("new", Change.NEW),
        ("remove", Change.GONE),
    ]
    assert gone_line(rows[-1]).split() == ["remove:", "gone,", "was", "9", "µs"]


def test_a_line_has_bar_and_ratio() -> None:
    figure = Figure("add", 20.0, "µs", 15, "quiet")
    line = figure_line(figure, compare_figure("engine", figure, baseline()))
    assert line == "MISSED add: 20 µs, bar ≤ 15 µs, 2.00× of 10 µs (worse)  (quiet)"
    assert figure_line(Figure("rate", 12000.0, "/s", 10000, better=Better.HIGHER)) == (
        "ok     rate: 12,000 /s, bar ≥ 10,000 /s"
    )


def test_what_is_written_is_read_again(tmp_path: Path) -> None:
    file = tmp_path / "bench.json"
    file.write_text(written({"engine": [Figure("add", 10.5, "µs", 60)], "kube": []}, taken="today, 2 cores"))
    assert read_baseline(file) == Baseline(
        taken="today, 2 cores", figures={("engine", "add"): FormerFigure(10.5, "µs")}
    )


MALFORMED = {
    "": "not JSON",
    "{": "not JSON",
    document()[:-20]: "not JSON",
    "[" * 100_000: "not JSON",
    "[]": "has no member 'format'",
    "7": "has no member 'format'",
    '{"figures": []}': "has no member 'format'",
    document(format="multikueue-bench/2"): "expected format 'multikueue-bench/1', found \"multikueue-bench/2\"",
    document(format=["x"]): "expected format 'multikueue-bench/1', found list of 1",
    document(figures={}): "figures: expected a list, found dict of 0",
    document(figures=[ENTRY, 7]): "figures[1]: expected an object, found 7",
    document(figures=[ENTRY | {"name": 7}]): "figures[0].name: expected text, found 7",
    document(figures=[{"name": "add", "value": 1, "unit": ""}]): "figures[0].bench: expected text, found None",
    document(figures=[ENTRY | {"value": "10"}]): 'figures[0].value: expected a number, found "10"',
    document(figures=[ENTRY | {"value": True}]): "figures[0].value: expected a number, found True",
    document(figures=[ENTRY | {"value": float("nan")}]): "figures[0].value: expected a number, found nan",
    document(figures=[ENTRY | {"value": 10**400}]): "figures[0].value: expected a number, found a number of",
    document(figures=[ENTRY, ENTRY]): 'figures[1]: engine has "add" twice',
}


@pytest.mark.parametrize("text", MALFORMED, ids=lambda text: text[:60])
def test_a_malformed_or_foreign_file_is_refused_before_a_bench_runs(
    text: str, tmp_path: Path, one_bench: SimpleNamespace, capsys: pytest.CaptureFixture[str]
) -> None:
    file = tmp_path / "former.json"
    file.write_text(text)
    with pytest.raises(BadInput) as raised:
        read_baseline(file)
    assert str(raised.value).startswith(f"baseline {file}: ")
    assert MALFORMED[text] in str(raised.value)
    assert runner.main([f"--baseline={file}", f"--json={tmp_path / 'new.json'}"]) == 2
    assert capsys.readouterr().err == f"{raised.value}\n"
    assert one_bench.runs == 0
    assert not (tmp_path / "new.json").exists()


def test_a_file_of_other_bytes_is_refused(tmp_path: Path) -> None:
    file = tmp_path / "former.json"
    file.write_bytes(b"\x7fELF\xff\xfe\x00")
    with pytest.raises(BadInput, match="not JSON"):
        read_baseline(file)


def test_a_file_beyond_the_limit_is_not_read(tmp_path: Path) -> None:
    file = tmp_path / "former.json"
    with file.open("wb") as written_file:
        written_file.truncate(17 * 1024 * 1024)
    with pytest.raises(BadInput, match="more than 16 MiB"):
        read_baseline(file)


def test_escape_sequences_of_a_file_do_not_reach_the_terminal(
    tmp_path: Path, one_bench: SimpleNamespace, capsys: pytest.CaptureFixture[str]
) -> None:
    file = tmp_path / "former.json"
    hostile = ENTRY | {"name": "\x1b[2Jgone", "unit": "\x1b[31m"}
    other_unit = {"bench": "engine", "name": "adds.us", "value": 1, "unit": "\x1b[31m"}
    file.write_text(document(taken="\x1b[2J" + "x" * 10_000, figures=[hostile, other_unit]))
    assert runner.main([f"--baseline={file}", f"--json={tmp_path / 'new.json'}"]) == 0
    printed = capsys.readouterr().out
    assert "\x1b" not in printed
    assert max(map(len, printed.splitlines())) < 1000


def test_a_missing_file_is_named_with_the_command_that_makes_one(
    tmp_path: Path, one_bench: SimpleNamespace, capsys: pytest.CaptureFixture[str]
) -> None:
    file = tmp_path / "none.json"
    assert runner.main([f"--baseline={file}", f"--json={tmp_path / 'new.json'}"]) == 2
    assert capsys.readouterr().err == (f"baseline {file}: there is no such file; make bench JSON={file} writes one\n")
    assert one_bench.runs == 0


def test_a_folder_is_no_baseline_and_no_place_to_write(
    tmp_path: Path, one_bench: SimpleNamespace, capsys: pytest.CaptureFixture[str]
) -> None:
    assert runner.main([f"--baseline={tmp_path}"]) == 2
    assert runner.main([f"--json={tmp_path}"]) == 2
    assert capsys.readouterr().err.splitlines() == [
        f"baseline {tmp_path}: Is a directory",
        f"cannot write figures to {tmp_path}: Is a directory",
    ]
    assert one_bench.runs == 0


def test_a_baseline_is_not_overwritten(
    tmp_path: Path, one_bench: SimpleNamespace, capsys: pytest.CaptureFixture[str]
) -> None:
    file = tmp_path / "former.json"
    file.write_text(document())
    assert runner.main([f"--baseline={file}", f"--json={file}"]) == 2
    assert "is the baseline and would be overwritten" in capsys.readouterr().err
    assert file.read_text() == document()
    assert one_bench.runs == 0


def test_a_run_can_be_the_baseline_of_the_next(
    tmp_path: Path, one_bench: SimpleNamespace, capsys: pytest.CaptureFixture[str]
) -> None:
    first, second = tmp_path / "build" / "first.json", tmp_path / "second.json"
    assert runner.main([f"--json={first}"]) == 0
    assert capsys.readouterr().out.splitlines() == [
        "engine:",
        "ok     adds.us: 11 µs, bar ≤ 20 µs",
        f"1 figures, 0 bars missed; written to {first}",
    ]
    one_bench.main = lambda: iter([Figure("adds.us", 33.0, "µs", 20)])
    assert runner.main(["engine", f"--baseline={first}", f"--json={second}"]) == 0
    printed = capsys.readouterr().out.splitlines()
    assert printed[0].startswith(f"compared with {first} (")
    assert printed[1:] == [
        "engine:",
        "MISSED adds.us: 33 µs, bar ≤ 20 µs, 3.00× of 11 µs (worse)",
        f"1 figures, 1 bars missed, 1 worse; written to {second}",
    ]


def test_a_bench_that_fails_is_named_and_its_figures_are_not_called_gone(
    tmp_path: Path, one_bench: SimpleNamespace, capsys: pytest.CaptureFixture[str]
) -> None:
    def broken() -> dict[str, object]:
        raise RuntimeError("no API server")

    file, former = tmp_path / "new.json", tmp_path / "former.json"
    former.write_text(document())
    one_bench.main = broken
    assert runner.main([f"--baseline={former}", f"--json={file}"]) == 1
    printed = capsys.readouterr()
    assert "no API server" in printed.err
    assert "gone" not in printed.out
    assert "failed: engine" in printed.out
    assert json.loads(file.read_text())["failed"] == ["engine"]


def test_a_name_that_no_bench_has_is_refused(one_bench: SimpleNamespace, capsys: pytest.CaptureFixture[str]) -> None:
    assert runner.main(["dispatcher"]) == 2
    assert "no bench matches dispatcher; there are engine" in capsys.readouterr().err


def test_every_bench_that_returns_nested_values_says_which_are_figures() -> None:
    found = dict(runner.benches())
    assert {"apiserver.rates", "engine", "flood", "kube.cache", "prices", "queueing", "simulation.cpu"} <= found.keys()
    for name, module in found.items():
        patterns = [shape.pattern for shape in getattr(module, "FIGURES", ())]
        assert patterns or name == "engine", f"{name} has no FIGURES"
        assert len(patterns) == len(set(patterns)), name
