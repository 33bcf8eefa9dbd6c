"""The check of playbook files: each kind of mistake, with its exact location and message."""

from __future__ import annotations

import itertools
import json
import os
import re
import socket
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from bot.adapters.yaml_playbooks import (
    FileHashes,
    StoredPlaybooks,
    check_file,
    check_text,
    files,
    load_folder,
    load_folders,
    load_playbook,
    load_table,
    load_text,
    with_packaged,
)
from bot.domain.kernel.errors import Fault, PlaybookError
from bot.domain.playbooks.bundle import Bundle
from bot.domain.playbooks.edges import successors
from bot.domain.playbooks.settings import Override

pytestmark = pytest.mark.fast

FOLDER = Path(__file__).parent.parent / "domain" / "playbooks"
SMALL = (FOLDER / "small.yaml").read_text(encoding="utf-8")
SHIPPED = Path(__file__).parents[2] / "playbooks"


@dataclass(frozen=True)
class Mistake:
    """One edit of small.yaml, and the fault that it must give."""

    name: str
    text: str
    fault: str


def read_mistakes(corpus: str) -> list[Mistake]:
    blocks = [block.splitlines() for block in re.split(r"\n{2,}", corpus) if not block.startswith("#")]
    return [_mistake(name.strip(), lines) for name, *lines in blocks]


def _mistake(name: str, lines: list[str]) -> Mistake:
    marked = {sign: [line[2:] for line in lines if line.startswith(sign)] for sign in "-+@!"}
    old, new = "\n".join(marked["-"]), "\n".join(marked["+"])
    if not marked["+"]:
        old += "\n"
    assert SMALL.count(old) == 1, f"{name}: {old!r} must stand once in small.yaml"
    before, _, after = SMALL.replace(old, new).partition("«")
    line, column = before.count("\n") + 1, len(before) - (before.rfind("\n") + 1) + 1
    at = marked["@"][0] if marked["@"] else f"{line}:{column}"
    return Mistake(name, before + after, f"p.yaml:{at}: {marked['!'][0]}")


MISTAKES = read_mistakes((Path(__file__).parent / "playbook_mistakes.txt").read_text(encoding="utf-8"))


@pytest.mark.parametrize("mistake", MISTAKES, ids=lambda mistake: mistake.name)
def test_a_mistake_is_reported_with_its_place_and_a_hint(mistake: Mistake) -> None:
    faults = check_text(mistake.text, {}, file="p.yaml").faults
    assert [str(fault) for fault in faults] == [mistake.fault]
    assert faults[0].hint, "it must say what to do next"


def test_the_small_playbook_is_sound() -> None:
    checked = check_text(SMALL, {})
    assert (checked.faults, checked.warnings) == ((), ())


TRIED = (
    SMALL.replace("change: set_flags", "change: run_job")
    .replace("{edits: [{flag: --max-num-seqs, value: '${cap_from_pool(0.9, 4064, 608)}'}]}", "{template: eval}")
    .replace("    against: kv_thrash\n", "")
)


def test_what_a_change_comes_back_with_can_be_named_after_it() -> None:
    used = TRIED.replace("calm: thrash < 0.01", "calm: results.cap.run_job.score > 0.7")
    assert check_text(used, {}).faults == ()


@pytest.mark.parametrize(
    ("old", "new", "fault"),
    [
        pytest.param(
            "calm: thrash < 0.01",
            "calm: results.cap.run_job.scor > 0.7",
            "unknown name 'results.cap.run_job.scor'. Did you mean 'results.cap.run_job.score'?",
            id="part",
        ),
        pytest.param(
            "calm: thrash < 0.01",
            "calm: results.cap.run_job.eval > 0.7",
            "'>' does not work with a text and a number",
            id="kind",
        ),
        pytest.param(
            "{when: restarts.oom, to: people}",
            "{when: results.calm.restarts.oom && results.cap.run_job.score > 1, to: people}",
            "",
            id="a-loop-may-have-been-there",
        ),
        pytest.param("  usage: {metric", "  run_job: {metric", "'run_job' means something else", id="reserved"),
        pytest.param("template: eval", "template: eval, tmeplate: x", "run_job takes no 'tmeplate'", id="argument"),
        pytest.param("{template: eval}", "{}", "run_job needs 'template' in 'with'", id="missing"),
    ],
)
def test_what_a_change_comes_back_with_is_checked_like_a_signal(old: str, new: str, fault: str) -> None:
    assert TRIED.count(old) == 1
    faults = [str(one) for one in check_text(TRIED.replace(old, new), {}).faults]
    assert any(fault in one for one in faults) if fault else not faults, faults


def test_a_change_that_comes_back_with_nothing_has_no_results() -> None:
    used = SMALL.replace("calm: thrash < 0.01", "calm: results.cap.set_flags.score > 0.7")
    assert "unknown name 'results.cap.set_flags.score'" in str(check_text(used, {}).faults[0])


def test_all_mistakes_of_a_file_are_reported_at_once_in_the_order_of_the_file() -> None:
    text = (
        SMALL.replace("take: p90}", "take: p95}")
        .replace("{otherwise: over}", "{otherwise: ovr}")
        .replace("change: set_flags", "change: set_flag")
        .replace("calm: thrash < 0.01", "calm: trash < 0.01")
        .replace("    taken: over\n", "")
    )
    faults = [str(fault) for fault in check_text(text, {}, file="p.yaml").faults]
    assert faults == [
        "p.yaml:10:69: 'p95' is not possible here. Did you mean 'p99'?",
        "p.yaml:24:21: unknown state 'ovr'. Did you mean 'over'?",
        "p.yaml:33:13: unknown verb 'set_flag'. Did you mean 'set_flags'?",
        "p.yaml:42:19: unknown name 'trash'. Did you mean 'thrash'?",
        "p.yaml:47:3: 'taken' is missing. Write 'taken': the next state when somebody takes over.",
    ]


def test_a_missing_text_does_not_hide_the_other_mistakes_of_its_state() -> None:
    text = SMALL.replace("change: set_flags", "change: set_flag").replace("    why: Fewer sequences fit.\n", "")
    text = text.replace("    done: calm\n", "")
    faults = [str(fault).partition(": ")[2] for fault in check_text(text, {}, file="p.yaml").faults]
    assert faults == [
        "'why' is missing. Write 'why': the reason, for people.",
        "'done' is missing. Write 'done': the next state when the change is done.",
        "unknown verb 'set_flag'. Did you mean 'set_flags'?",
    ]


EDITS = "edits: [{flag: --max-num-seqs, value: '${cap_from_pool(0.9, 4064, 608)}'}]"
ASKS_AGAIN = "  again: {ask: Sure?, not_by: question, choices: {yes_: {label: Yes, to: cap}}}\n  cap:\n    change"
NO_FLAG = "'7' is not true or false. Write true or false."


@pytest.mark.parametrize(
    ("edits", "expected"),
    [
        pytest.param({"baseline: true": "baseline: 7"}, [NO_FLAG], id="a-state-and-what-it-picks"),
        pytest.param(
            {"baseline: true": "baseline: 7", "take: p90}": "take: p90, ending: results.look.thrash}"},
            [NO_FLAG],
            id="a-window-that-ends-at-a-reading",
        ),
        pytest.param(
            {"ask: What do you see?": "ask: 7", "  cap:\n    change": ASKS_AGAIN},
            ["'7' is not a text. Put it in quotes."],
            id="a-question-that-somebody-else-answered",
        ),
        pytest.param(
            {"baseline: true": "baseline: 7", EDITS: "edits: picked.replica"},
            [
                NO_FLAG,
                "'edits' is a list. Write [{flag: --name, value: …}].",
                "'picked.replica' would be taken as it stands. Write '${picked.replica}' for what it names.",
            ],
            id="but-not-a-mistake-of-its-own",
        ),
    ],
)
def test_what_is_missing_because_of_another_mistake_is_not_reported(edits: dict[str, str], expected: list[str]) -> None:
    text = SMALL
    for old, new in edits.items():
        assert old in text
        text = text.replace(old, new)
    faults = check_text(text, {}, file="p.yaml").faults
    assert sorted(str(fault).split(": ", 1)[1] for fault in faults) == sorted(expected)


BEFORE = """
language: 1
playbook: order
title: Order
opens_on: ['a="b"']
signals:
  usage: {metric: kv_cache_usage_perc}
  each: {metric: kv_cache_usage_perc, across: each}
  of_it: {metric: num_requests_running, of: picked.late}
start: first
states:
  first:
    read: [usage]
    go:
      - {when: 'usage > MENTION', to: second}
      - {otherwise: second}
  second:
    ask: Well?
    read: [LISTED]
    choices: {go_on: {label: Go on, to: third}}
  third:
    read: [usage, each]
    baseline: true
    pick: {late: worst(each)}
    go: [{otherwise: over}]
  over: {end: fixed}
"""


@pytest.mark.parametrize(
    ("mention", "listed", "says"),
    [
        ("1", "usage", []),
        ("results.third.usage", "usage", ["p.yaml:15:25: nothing before 'first' makes 'results.third'"]),
        ("baseline.usage", "usage", ["p.yaml:15:25: nothing before 'first' makes 'baseline.usage'"]),
        (
            '1 && answers.second == "go_on" && picked.late != target.name',
            "usage",
            [
                "p.yaml:15:30: nothing before 'first' makes 'answers.second'",
                "p.yaml:15:59: nothing before 'first' makes 'picked.late'",
            ],
        ),
        ("1", "of_it", ["p.yaml:19:12: 'of_it' is of 'picked.late', which nothing before 'second' picks"]),
    ],
)
def test_a_state_may_only_use_what_comes_before_it(mention: str, listed: str, says: list[str]) -> None:
    text = BEFORE.replace("MENTION", mention).replace("LISTED", listed)
    assert [str(fault) for fault in check_text(text, {}, file="p.yaml").faults] == says


LATER = "p.yaml:20:12: the window of 'past' ends at 'results.{}', which nothing before 'second' reads"
CIRCULAR = (
    "this window ends at a reading that needs '{}' first. Write incident.starts_at, or a reading that comes first."
)


@pytest.mark.parametrize(
    ("ending", "other", "third", "says"),
    [
        pytest.param("results.first.usage", "", "over", [], id="before"),
        pytest.param("results.third.usage", "", "over", [LATER.format("third.usage")], id="after"),
        pytest.param("results.second.usage", "", "over", [LATER.format("second.usage")], id="at-once"),
        pytest.param("results.third.usage", "", "second", [], id="before-in-the-next-round"),
        pytest.param("results.second.past", "", "over", ["p.yaml:10:47: " + CIRCULAR.format("past")], id="itself"),
        pytest.param("results.second.past", "", "second", ["p.yaml:10:47: " + CIRCULAR.format("past")], id="in-a-loop"),
        pytest.param(
            "results.third.other",
            "  other: {metric: kv_cache_usage_perc, ending: results.second.past}\n",
            "second",
            ["p.yaml:10:47: " + CIRCULAR.format("past"), "p.yaml:11:48: " + CIRCULAR.format("other")],
            id="each-other",
        ),
    ],
)
def test_a_window_may_only_end_at_a_reading_that_comes_before(
    ending: str, other: str, third: str, says: list[str]
) -> None:
    past = f"  past: {{metric: kv_cache_usage_perc, ending: {ending}}}\n"
    text = BEFORE.replace("MENTION", "1").replace("[LISTED]", "[past, usage]").replace("start:", f"{past}{other}start:")
    text = text.replace("read: [usage, each]", f"read: [{'other, ' if other else ''}usage, each]")
    text = text.replace("[{otherwise: over}]", f"[{{when: usage > 2, to: {third}}}, {{otherwise: over}}]")
    assert [str(fault) for fault in check_text(text, {}, file="p.yaml").faults] == says


@pytest.mark.parametrize(
    ("old", "new", "says"),
    [
        ("    failed: question\n", "", "a high-risk change does not say what follows when it fails. Write 'failed'."),
        (
            "    still: thrash > settings.ratio\n",
            "",
            "a change without a reason that must still hold. Write 'still': the reason, read again before the call.",
        ),
        (", idle: bad_one < 1", "", "no state reads 'bad_one'"),
        ("for: settings.window", "for: 5m", None),
        ("opens_on: [", "opens_on: [] #", "no alert opens this playbook. Write 'opens_on', or 'opens: by_hand'."),
        ("thrash > settings.ratio && usage > 0.9", "thrash > 1", None),
    ],
)  # fmt: skip
def test_what_is_probably_not_meant_is_a_warning(old: str, new: str, says: str | None) -> None:
    checked = check_text(SMALL.replace(old, new), {}, file="p.yaml")
    assert checked.faults == ()
    assert [str(fault).split(": ", 1)[1] for fault in checked.warnings] == ([says] if says else [])


@pytest.mark.parametrize("name", ["canary", "usage"], ids=["of-any-name", "of-the-name-of-a-signal-that-is-used"])
def test_a_setting_that_nothing_uses_is_a_warning(name: str) -> None:
    checked = check_text(SMALL.replace("signals:", f"  {name}: {{default: 1}}\nsignals:", 1), {})
    assert [str(fault) for fault in checked.warnings] == [f"playbook:9:3: nothing uses the setting '{name}'"]


def test_an_override_is_checked_like_a_default() -> None:
    with pytest.raises(PlaybookError, match=r"0\.001 is below the least allowed"):
        load_text(SMALL, {"ratio": "0.001"})
    with pytest.raises(PlaybookError, match=r"no setting 'windw' to override. Did you mean 'window'\?"):
        load_text(SMALL, {"windw": "12s"})


# --- files and folders -----------------------------------------------------------------------------------------------


def test_a_broken_file_hides_no_other(tmp_path: Path) -> None:
    (tmp_path / "a.yaml").write_text(SMALL, encoding="utf-8")
    (tmp_path / "b.yaml").write_text("playbook: [", encoding="utf-8")
    (tmp_path / "c.yaml").write_text(SMALL, encoding="utf-8")
    (tmp_path / "d.test.yaml").write_text("no playbook", encoding="utf-8")
    library = load_folder(tmp_path, Override(settings={"window": "12s"}))
    assert list(library.playbooks) == ["small"]
    assert library.playbooks["small"].settings["window"] == 12
    assert [Path(file).name for file in library.faults] == ["b.yaml", "c.yaml"]
    assert "'small' is also in" in library.faults[str(tmp_path / "c.yaml")][0].what


def test_an_override_that_no_playbook_knows_is_a_fault(tmp_path: Path) -> None:
    (tmp_path / "a.yaml").write_text(SMALL, encoding="utf-8")
    library = load_folder(tmp_path, Override(settings={"windw": "12s"}))
    assert [fault.what for fault in library.faults["settings"]] == ["no playbook has a setting 'windw'"]


def test_a_wrong_override_is_one_fault_and_takes_no_playbook_out_of_force(tmp_path: Path) -> None:
    for name in ("one", "two"):
        (tmp_path / f"{name}.yaml").write_text(SMALL.replace("playbook: small", f"playbook: {name}"), encoding="utf-8")
    library = load_folder(tmp_path, Override(settings={"window": "12"}), Override(settings={"ratio": "0.2"}))
    assert [(name, each.settings["window"], each.settings["ratio"]) for name, each in library.playbooks.items()] == [
        ("one", 300.0, 0.2),
        ("two", 300.0, 0.2),
    ]
    (file,) = library.faults
    assert (file, [str(fault) for fault in library.faults[file]]) == (
        "settings",
        ["overrides: window: '12' is not a duration. Write 90s, 5m or 1h30m."],
    )


def test_the_highest_priority_opens_first(tmp_path: Path) -> None:
    for name, priority in (("low", 10), ("high", 90), ("middle", 50)):
        text = SMALL.replace("playbook: small", f"playbook: {name}\npriority: {priority}")
        (tmp_path / f"{name}.yaml").write_text(text, encoding="utf-8")
    library = load_folder(tmp_path)
    assert [playbook.name for playbook in library.match({"alertname": "KV", "severity": "page"})] == [
        "high",
        "middle",
        "low",
    ]
    assert library.match({"alertname": "Other"}) == []


@pytest.mark.parametrize(
    ("content", "says"),
    [
        (b"\xff\xfe", "is not UTF-8 at byte 0"),
        (b"#" * (512 * 1024 + 1), "the file is bigger than 512 KiB"),
        (b"", "a playbook is a mapping of keys"),
        (b"- a", "a playbook is a mapping of keys"),
        (b"a: " + b"[" * 40, "this is nested too deep"),
        (b"\x00", "special characters are not allowed"),
        (b"a: &a [x]\nb: [*a, *a]", "anchors and aliases are refused"),
    ],
)
def test_what_is_no_playbook_is_refused(tmp_path: Path, content: bytes, says: str) -> None:
    path = tmp_path / "p.yaml"
    path.write_bytes(content)
    checked = check_file(path, {})
    assert checked.compiled is None
    assert says in str(checked.faults[0])


@pytest.mark.parametrize(
    ("content", "says"),
    [
        (b"\xff\xfe", "is not UTF-8 at byte 0"),
        (b"#" * (512 * 1024 + 1), "the file is bigger than 512 KiB"),
        (None, "is not a file with text"),
    ],
)
def test_an_unreadable_fragment_refuses_only_what_includes_it(tmp_path: Path, content: bytes | None, says: str) -> None:
    including = SMALL.replace("playbook: small", "playbook: one").replace("  over:", "  more: {include: odd}\n  over:")
    path = folder_of(tmp_path, small=SMALL, one=including, fragments__odd="") / "fragments" / "odd.yaml"
    path.unlink()
    os.mkfifo(path) if content is None else path.write_bytes(content)
    assert [f"{path}: {says}" in str(fault) for fault in check_file(tmp_path / "one.yaml", {}).faults] == [True]
    library = load_folder(tmp_path)
    assert list(library.playbooks) == ["small"]
    assert library.faults.keys() == {str(path), str(tmp_path / "one.yaml")}


def test_a_file_that_is_not_there_is_a_fault() -> None:
    with pytest.raises(PlaybookError, match=r"nowhere\.yaml: cannot be read: No such file"):
        load_playbook(Path("nowhere.yaml"))


def test_a_run_goes_on_with_a_playbook_that_a_newer_check_would_refuse() -> None:
    begun = Bundle.of(load_text(SMALL)).stored()
    stricter = SMALL.replace("    held: over", "    held: over\n    not_held: cap")
    assert check_text(stricter, {}).compiled is None
    kept = json.loads(begun["playbooks"])
    kept["small"]["source"] = stricter
    again = StoredPlaybooks()({**begun, "playbooks": json.dumps(kept)}).playbooks["small"]
    assert successors(again.playbook, "calm") == ("over", "cap", "question")


# --- several files ---------------------------------------------------------------------------------------------------


def folder_of(folder: Path, **texts: str) -> Path:
    for name, text in texts.items():
        path = folder / (name.replace("__", "/") + ".yaml")
        path.parent.mkdir(exist_ok=True)
        path.write_text(text, encoding="utf-8")
    return folder


def diverting(to: str, end: str = "fixed") -> str:
    divert = f"  people:\n    divert: {to}\n    why: It crashes.\n    returns: {{{end}: over}}\n"
    start, stop = SMALL.index("  people:\n"), SMALL.index("  over:")
    return (SMALL[:start] + divert + SMALL[stop:]).replace("playbook: small", "playbook: one")


def faults_in(folder: Path) -> list[str]:
    library = load_folder(folder)
    return [str(fault).removeprefix(f"{folder}/") for faults in library.faults.values() for fault in faults]


def test_a_related_runbook_must_name_a_playbook_of_the_folder(tmp_path: Path) -> None:
    def related(name: str) -> str:
        return SMALL.replace("start:", f"related: [{{runbook: GPU faults, playbook: {name}}}]\nstart:", 1)

    (fault,) = faults_in(folder_of(tmp_path, small=related("smal")))
    assert fault.endswith("unknown playbook 'smal'. Did you mean 'small'?")
    assert faults_in(folder_of(tmp_path, small=related("small"))) == []


@pytest.mark.parametrize(
    ("text", "fault"),
    [
        (diverting("smal"), "one.yaml:48:13: unknown playbook 'smal'. Did you mean 'small'?"),
        (diverting("small", "unproven"), "one.yaml:50:15: 'small' never ends with 'unproven'. Known: fixed."),
        (diverting("small", "fxed"), "one.yaml:50:15: no playbook ends with 'fxed'. Did you mean 'fixed'?"),
    ],
)
def test_a_divert_must_lead_to_a_playbook_of_the_folder(tmp_path: Path, text: str, fault: str) -> None:
    assert faults_in(folder_of(tmp_path, one=text, small=SMALL)) == [fault]
    assert load_folder(tmp_path).playbooks.keys() == {"small"}


def test_a_playbook_with_faults_does_not_take_those_with_it_that_divert_to_it(tmp_path: Path) -> None:
    library = load_folder(folder_of(tmp_path, one=diverting("small"), small=SMALL.replace("thrash", "trash", 1)))
    assert library.playbooks.keys() == {"one"}
    assert [Path(file).name for file in library.faults] == ["small.yaml"]


def test_a_file_that_is_checked_alone_knows_what_stands_beside_it(tmp_path: Path) -> None:
    folder_of(tmp_path, one=diverting("small"), small=SMALL, two=diverting("smal"))
    assert check_file(tmp_path / "one.yaml", {}).faults == ()
    assert len(check_file(tmp_path / "two.yaml", {}).faults) == 1


def test_the_faults_of_a_fragment_are_reported_for_its_own_file_and_for_its_includers(tmp_path: Path) -> None:
    text = SMALL.replace("  over: {end: fixed}", "  over: {include: last}")
    last = "language: 1\nfragment: last\nstart: x\nstates: {y: {end: fixed}}\n"
    folder_of(tmp_path, small=text, fragments__last=last)
    fault = "fragments/last.yaml:3:8: unknown state 'x'. Known: y."
    assert faults_in(tmp_path) == [fault, fault]


# --- fuzz ------------------------------------------------------------------------------------------------------------


@given(st.text(max_size=200))
def test_no_text_crashes_the_loader(text: str) -> None:
    assert check_text(text, {}).faults


@given(st.binary(max_size=200))
@settings(max_examples=40)
def test_no_bytes_crash_the_loader(tmp_path_factory: pytest.TempPathFactory, content: bytes) -> None:
    path = tmp_path_factory.mktemp("fuzz") / "p.yaml"
    path.write_bytes(content)
    assert check_file(path, {}).faults


FRAGMENTS = st.sampled_from(
    [
        "",
        " ",
        "\n",
        ":",
        "- ",
        "{",
        "}",
        "[",
        "]",
        "'",
        '"',
        "#",
        "${",
        "1",
        "-1",
        "null",
        "true",
        "look",
        "settings.",
        "≥",
    ]
)


@given(st.integers(0, len(SMALL)), st.integers(0, 40), FRAGMENTS)
@settings(max_examples=80, deadline=None)
def test_no_slip_of_the_pen_crashes_the_loader(start: int, length: int, instead: str) -> None:
    checked = check_text(SMALL[:start] + instead + SMALL[start + length :], {}, file="p.yaml")
    assert (checked.compiled is None) == bool(checked.faults)
    for fault in checked.faults:
        file, line, column = fault.where.rsplit(":", 2)
        assert (file, int(line) >= 1, int(column) >= 1) == ("p.yaml", True, True)


JSON = st.recursive(
    st.none() | st.booleans() | st.integers(-9, 9) | st.floats(allow_nan=False) | st.text(max_size=8),
    lambda children: st.lists(children, max_size=3) | st.dictionaries(st.text(max_size=8), children, max_size=3),
    max_leaves=8,
)
LINES = [line for line in SMALL.splitlines() if ": " in line]


@given(st.sampled_from(LINES), JSON)
@settings(max_examples=80, deadline=None)
def test_no_value_in_the_wrong_place_crashes_the_loader(line: str, value: object) -> None:
    wrong = line.split(": ", 1)[0] + ": " + json.dumps(value)
    checked = check_text(SMALL.replace(line, wrong, 1), {})
    assert (checked.compiled is None) == bool(checked.faults)


# --- what is shipped -------------------------------------------------------------------------------------------------


def test_every_shipped_playbook_is_sound_and_without_a_warning() -> None:
    library = load_folder(SHIPPED)
    assert library.playbooks
    assert (library.faults, library.warnings) == ({}, {})


RENEWS = """
language: 1
playbook: renews
title: Renews the busiest replica
opens_on: ['alertname="Busy"']
signals:
  running: {metric: num_requests_running, across: each}
start: look
states:
  look:
    read: [running]
    pick: {replica: worst(running)}
    go: [{otherwise: renew}]
  renew:
    include: drain_one
    with: {still: 'value_of(running, picked.replica) > 9', reason: It is too busy.}
    exits: {done: over, refused: over, failed: sick, not_empty: renew_sticky, kept: renew_back, hand_over: sick}
  sick: {divert: gpu-fault, why: Its GPU may be ill.}
  over: {end: fixed}
"""


def test_a_playbook_of_ones_own_includes_packaged_fragments_and_diverts_to_packaged_playbooks(tmp_path: Path) -> None:
    folder = folder_of(tmp_path, renews=RENEWS)
    alone = check_file(folder / "renews.yaml", {})
    assert (alone.faults, alone.compiled is not None) == ((), True)
    library = load_folders(with_packaged(folder))
    assert library.faults == {}
    assert {"renews", "gpu-fault"} <= library.playbooks.keys()


def test_without_the_packaged_folder_a_divert_to_one_of_them_leads_nowhere(tmp_path: Path) -> None:
    (faults,) = load_folder(folder_of(tmp_path, renews=RENEWS)).faults.values()
    assert [fault.what for fault in faults] == ["unknown playbook 'gpu-fault'"]


def test_a_file_of_ones_own_takes_the_place_of_the_packaged_one_of_that_name(tmp_path: Path) -> None:
    own = SMALL.replace("playbook: small", "playbook: kv-compression-no-savings")
    library = load_folders(with_packaged(folder_of(tmp_path, **{"kv-compression-no-savings": own})))
    assert library.faults == {}
    assert library.playbooks["kv-compression-no-savings"].playbook.title == "A small playbook"


def test_a_fragment_of_ones_own_counts_for_ones_own_playbooks_only(tmp_path: Path) -> None:
    folder = folder_of(tmp_path, renews=RENEWS)
    (folder / "fragments").mkdir()
    fragment = "language: 1\nfragment: drain_one\nexits: {x: y}\nstart: a\nstates: {a: {end: fixed}}\n"
    (folder / "fragments" / "drain_one.yaml").write_text(fragment)
    library = load_folders(with_packaged(folder))
    assert "kv-cache-oom" in library.playbooks
    assert "renews" not in library.playbooks


# --- plain values ----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("written", "value"),
    [
        ("12", 12),
        ("-0.5", -0.5),
        ("1e3", 1000.0),
        (".5", 0.5),
        ("true", True),
        ("FALSE", False),
        ("~", None),
        ("", None),
        ("on", "on"),
        ("no", "no"),
        ("0x1F", "0x1F"),
        ("1_000", "1_000"),
        ("12:30", "12:30"),
        ("2026-11-21", "2026-11-21"),
        ("'12'", "12"),
        ('"true"', "true"),
        ("[1, {a: b}]", [1, {"a": "b"}]),
    ],
)
def test_a_value_is_read_as_it_is_written(tmp_path: Path, written: str, value: object) -> None:
    path = tmp_path / "table.yaml"
    path.write_text(f"value: {written}\n", encoding="utf-8")
    assert load_table(path).data == {"value": value}


def test_a_list_is_a_table_of_cases(tmp_path: Path) -> None:
    path = tmp_path / "table.yaml"
    path.write_text("- name: one\n- name: two\n", encoding="utf-8")
    table = load_table(path)
    assert table.data == {"cases": [{"name": "one"}, {"name": "two"}]}
    assert table.keys["cases", 1, "name"].line == 2


def test_keys_that_are_no_words_or_occur_twice_are_reported_all_at_once() -> None:
    faults = check_text("? [a, b]\n: c\nd: {e: 1, e: {f: 2}}\nd: 3\n", {}, file="p.yaml").faults
    assert [str(fault) for fault in faults] == [
        "p.yaml:1:3: a key must be a word. Write 'key: value'.",
        "p.yaml:3:11: 'e' is written twice. Delete one, or give it another name.",
        "p.yaml:4:1: 'd' is written twice. Delete one, or give it another name.",
    ]


def _pipe(path: Path) -> None:
    os.mkfifo(path)


def _socket(path: Path) -> None:
    with socket.socket(socket.AF_UNIX) as made:
        made.bind(path.name)


@pytest.mark.parametrize(
    ("make", "reason"),
    [
        pytest.param(_pipe, "is not a file with text", id="pipe"),
        pytest.param(Path.mkdir, "Is a directory", id="directory"),
        pytest.param(lambda path: path.symlink_to("/dev/zero"), "is not a file with text", id="device"),
        pytest.param(_socket, "cannot be read", id="socket"),
        pytest.param(lambda path: path.write_bytes(b"#" * 10_000_000), "bigger than", id="huge file"),
        pytest.param(lambda path: path.symlink_to("nowhere"), "cannot be read", id="broken link"),
        pytest.param(lambda path: path.symlink_to(path.name), "cannot be read", id="link to itself"),
    ],
)
@pytest.mark.parametrize("where", ["", "fragments/"])
def test_what_is_no_text_in_a_folder_is_a_fault_and_hinders_no_playbook_beside_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, make: Callable[[Path], object], reason: str, where: str
) -> None:
    (tmp_path / "good.yaml").write_text(SMALL)
    (tmp_path / where).mkdir(exist_ok=True)
    monkeypatch.chdir(tmp_path / where)  # the path of a socket must be short
    strange = tmp_path / where / "strange.yaml"
    make(strange)
    library = load_folders([tmp_path])
    assert len(library.playbooks) == 1
    assert reason in str(library.faults[str(strange)][0])
    assert str(strange) in FileHashes([tmp_path])()


# --- which files have changed ----------------------------------------------------------------------------------------


def test_a_file_that_was_not_written_is_not_read_again(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(files, "SETTLED_SECONDS", -1.0)
    (tmp_path / "one.yaml").write_text("one")
    hashes = FileHashes([tmp_path])
    first = hashes()
    monkeypatch.setattr(files, "text_of", lambda path: pytest.fail(f"{path} was read again"))
    assert hashes() == first


@pytest.mark.parametrize("settled", [2.0, -1.0])
def test_every_way_to_change_a_folder_is_noticed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, settled: float
) -> None:
    monkeypatch.setattr(files, "SETTLED_SECONDS", settled)
    one, two = tmp_path / "one.yaml", tmp_path / "two.yaml"
    one.write_text("one")
    hashes = FileHashes([tmp_path])
    seen = [hashes()]
    two.write_text("two")
    seen.append(hashes())
    one.write_text("longer")
    seen.append(hashes())
    # As a mounted ConfigMap is: another file of the same length, and as old as before.
    new = tmp_path / "new"
    new.write_text("shorts")
    os.utime(new, ns=(one.stat().st_atime_ns, one.stat().st_mtime_ns))
    new.replace(one)
    seen.append(hashes())
    two.unlink()
    seen.append(hashes())
    assert all(before != after for before, after in itertools.pairwise(seen))
    assert hashes() == FileHashes([tmp_path])()


def test_a_file_that_was_just_written_is_read_again_whatever_its_times_say(tmp_path: Path) -> None:
    one = tmp_path / "one.yaml"
    one.write_text("one")
    hashes = FileHashes([tmp_path])
    before, times = hashes(), one.stat()
    one.write_text("eno")
    os.utime(one, ns=(times.st_atime_ns, times.st_mtime_ns))
    assert hashes() != before


def test_a_file_that_could_not_be_read_is_read_again_without_being_written(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(files, "SETTLED_SECONDS", -1.0)
    (tmp_path / "one.yaml").write_text("one")
    hashes = FileHashes([tmp_path])
    with monkeypatch.context() as away:
        away.setattr(files, "text_of", lambda path: Fault(str(path), "cannot be read: Input/output error"))
        unread = hashes()
    assert hashes() != unread
    assert hashes() == FileHashes([tmp_path])()


def test_a_playbook_that_is_not_called_as_its_file_is_a_warning(tmp_path: Path) -> None:
    (tmp_path / "other.yaml").write_text(SMALL)
    (warning,) = load_folder(tmp_path).warnings[str(tmp_path / "other.yaml")]
    assert str(warning).endswith("its file is called 'other'. Give both one name: commands take it.")
    assert warning.where.startswith(f"{tmp_path}/other.yaml:3:")


@pytest.mark.parametrize(("written", "is_refused"), [("0s", True), ("1s", False)])
def test_a_setting_of_no_time_is_refused_where_a_time_is_needed(written: str, is_refused: bool) -> None:
    text = f"""
language: 1
playbook: p
title: T
opens_on: ['alertname="A"']
signals: {{waiting: {{metric: num_requests_waiting, over: settings.length}}}}
settings: {{length: {{default: {written}}}}}
start: watch
states:
  watch: {{watch: {{calm: waiting < 1}}, for: 1m, within: 5m, every: settings.length, held: ask, otherwise: ask}}
  ask: {{ask: Q, choices: {{a: {{label: A, to: over}}}}, expires: settings.length, expired: over}}
  over: {{end: handed_over}}
"""
    found = [fault.what for fault in check_text(text, {}).faults]
    expected = ["'length' is not more than 0, and a time is needed here"] * 3
    assert found == (expected if is_refused else [])
