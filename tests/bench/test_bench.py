"""The bench runs to its end and measures everything; no test asserts a speed."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

from tests.bench.__main__ import main
from tests.bench.repeat import main as repeat
from tests.bench.scenarios import SCENARIOS
from tests.bench.scrape import main as measure_scraping

TINY = (
    "--rounds=1",
    "--forks",
    "--webhooks=4",
    "--large-webhooks=2",
    "--alerts=3",
    "--cards=3",
    "--presses=4",
    "--incidents=2",
    "--commands=4",
    "--steady-presses=4",
    "--crowd=3",
    "--turns=2",
    "--storm-groups=3",
    "--storm-alerts=2",
    "--repeats=4",
    "--idle-seconds=0.5",
    "--quiet-seconds=0.3",
)


@pytest.mark.bench
@pytest.mark.end_to_end
def test_the_bench_measures_every_scenario_beside_the_floor(capsys: pytest.CaptureFixture[str]) -> None:
    main(TINY)
    printed = capsys.readouterr().out
    assert "bot/floor" in printed
    assert [scenario for scenario in SCENARIOS if scenario not in printed] == []


@pytest.mark.bench
def test_the_scrape_bench_reads_every_replica(capsys: pytest.CaptureFixture[str]) -> None:
    measure_scraping(["--replicas=5", "--rounds=1"])
    assert "0 failed" in capsys.readouterr().out


@pytest.mark.fast
def test_scenarios_are_played_beside_a_busy_process_and_counted(
    capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    # Every scenario is played as itself by tests/end_to_end; here a program that ends well for one of them stands in.
    demo = (sys.executable, "-c", "import sys; print('the last line'); sys.exit('thrash' not in sys.argv)")
    chosen = ["thrash", "never-set", "--times=2", "--burners=1", f"--keep={tmp_path}"]
    assert repeat(chosen, demo) == 1
    printed = capsys.readouterr().out
    assert [line.split()[:2] for line in printed.splitlines()[-2:]] == [["thrash", "2/2"], ["never-set", "0/2"]]
    assert "never-set 1: WRONG" in printed
    assert sorted(path.name for path in tmp_path.iterdir()) == ["never-set-1.txt", "never-set-2.txt"]


@pytest.mark.fast
def test_a_scenario_that_does_not_exist_is_refused_before_anything_starts(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit):
        repeat(["trash"])
    assert "unknown scenario trash" in capsys.readouterr().err
