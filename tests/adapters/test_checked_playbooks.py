"""Playbooks that were checked before are not checked again, unless anything that decides about them has changed."""

from __future__ import annotations

import importlib
import importlib.metadata
import shutil
from collections.abc import Callable
from pathlib import Path

import pytest

from bot.adapters import checked_playbooks
from bot.adapters.checked_playbooks import FOLDER, CheckedPlaybooks
from bot.adapters.yaml_playbooks import check_file, folders, load_folder, load_folders
from bot.domain.kernel.errors import PlaybookError
from bot.domain.playbooks import compiled
from bot.domain.playbooks.compiled import CompiledPlaybook, checked_before
from bot.domain.playbooks.language import Playbook
from bot.domain.playbooks.library import Library
from bot.domain.playbooks.packaged import packaged_playbooks
from bot.domain.playbooks.picture.overview import overview
from bot.domain.signals.signal import Value
from bot.probes import catalogue
from bot.probes.catalogue import PROBES
from tests.domain.playbooks.including import HOST, VERIFY
from tests.domain.playbooks.test_otherwise import SHORT

pytestmark = pytest.mark.fast

Checks = list[str]


def before(code: str = "1", *, reads: bool = True) -> CheckedPlaybooks:
    return CheckedPlaybooks(PROBES, reads=reads, code=lambda: code)


@pytest.fixture
def checks(monkeypatch: pytest.MonkeyPatch) -> Checks:
    """The files that were checked, in order."""
    seen: Checks = []
    check: Callable[..., object] = check_file

    def counted(path: Path, *rest: object, **named: object) -> object:
        seen.append(path.stem)
        return check(path, *rest, **named)

    monkeypatch.setattr(folders, "check_file", counted)
    return seen


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """`short` alone, and `small` with the fragment `verify`."""
    (tmp_path / "fragments").mkdir()
    (tmp_path / "fragments" / "verify.yaml").write_text(VERIFY)
    (tmp_path / "p.yaml").write_text(SHORT)
    (tmp_path / "small.yaml").write_text(HOST)
    return tmp_path


def load(folder: Path, known: CheckedPlaybooks | None = None) -> Library:
    return load_folders((folder,), before=known or before())


def test_the_second_start_checks_nothing_and_serves_the_same(folder: Path, checks: Checks) -> None:
    first = load(folder)
    assert checks == ["p", "small"]
    second = load(folder)
    assert checks == ["p", "small"]
    assert not second.faults
    assert second.warnings == first.warnings
    for name, playbook in first.playbooks.items():
        assert_same(second.playbooks[name], playbook)


def assert_same(one: CompiledPlaybook, other: CompiledPlaybook) -> None:
    assert one.playbook == other.playbook
    assert (one.settings, one.digest, one.stored(), one.file) == (
        other.settings, other.digest, other.stored(), other.file,
    )  # fmt: skip
    assert overview(one) == overview(other)
    places = {at: place for at, place in other.source.keys.items() if len(at) <= 2}
    assert {at: (place.line, place.column, place.file) for at, place in one.source.keys.items()} == {
        at: (place.line, place.column, place.file) for at, place in places.items()
    }


def test_the_packaged_playbooks_are_the_same_too(tmp_path: Path) -> None:
    served = tmp_path / "playbooks"
    shutil.copytree(packaged_playbooks(), served, ignore=shutil.ignore_patterns(FOLDER))
    fresh = load(served)
    kept = load(served)
    assert len(kept.playbooks) == 6
    for name, playbook in fresh.playbooks.items():
        assert_same(kept.playbooks[name], playbook)


def test_its_expressions_decide_as_before(folder: Path) -> None:
    load(folder)
    playbook = load(folder).playbooks["p"]
    data: dict[str, Value] = {"usage": 0.5}
    assert playbook.watch_parts("calm", data) == {"low": True}


@pytest.mark.parametrize(
    ("changed", "checked"),
    [
        pytest.param("p.yaml", ["p"], id="the playbook"),
        pytest.param("fragments/verify.yaml", ["small"], id="a fragment that it includes"),
    ],
)
def test_an_edit_is_checked(folder: Path, checks: Checks, changed: str, checked: list[str]) -> None:
    load(folder)
    checks.clear()
    (folder / changed).write_text((folder / changed).read_text() + "# edited\n")
    load(folder)
    assert checks == checked


def test_other_code_checks_again(folder: Path, checks: Checks) -> None:
    load(folder)
    checks.clear()
    load(folder, before("2"))
    assert checks == ["p", "small"]


@pytest.mark.parametrize("text", ["", "{", "{}", "key\n{}", "key\n" + "[" * 200_000])
def test_an_unusable_file_is_written_again(folder: Path, checks: Checks, text: str) -> None:
    load(folder)
    place = folder / FOLDER / "p.checked.json"
    place.write_text(text)
    checks.clear()
    load(folder)
    assert checks == ["p"]
    assert '"playbook":"p"' in place.read_text()


def test_a_fault_is_reported_where_it_is_although_others_were_checked_before(folder: Path) -> None:
    (folder / "p.yaml").write_text(SHORT.replace("people: {end: handed_over}", "people: {divert: small, why: w}"))
    load(folder)
    (folder / "small.yaml").write_text(HOST + "nonsense: 1\n")
    assert load(folder).faults == load_folder(folder).faults


def test_a_faulty_fragment_that_nobody_includes_is_a_fault(folder: Path) -> None:
    load(folder)
    (folder / "fragments" / "lost.yaml").write_text("fragment: found\nlanguage: 1\n")
    assert load(folder).faults == load_folder(folder).faults != {}


def test_a_broken_playbook_is_not_kept(folder: Path, checks: Checks) -> None:
    (folder / "p.yaml").write_text(SHORT.replace("start: restart", "start: nowhere"))
    load(folder)
    assert not (folder / FOLDER / "p.checked.json").exists()


def test_a_folder_that_cannot_be_written_is_served_all_the_same(folder: Path, checks: Checks) -> None:
    (folder / FOLDER).write_text("a file where the folder would be")
    assert set(load(folder).playbooks) == set(load(folder).playbooks) == {"p", "small"}
    assert checks == ["p", "small", "p", "small"]


def test_the_check_itself_always_checks_and_keeps(folder: Path, checks: Checks) -> None:
    load(folder, before(reads=False))
    load(folder, before(reads=False))
    assert checks == ["p", "small", "p", "small"]
    checks.clear()
    load(folder)
    assert checks == []


def test_the_code_that_decides_is_that_of_the_checker_and_its_libraries() -> None:
    imported = {
        module.__file__
        for name in ("check", "include", "options", "otherwise", "structure")
        if (module := importlib.import_module(f"bot.domain.playbooks.loading.{name}")).__file__
    }
    code = checked_playbooks._code()
    for file in {*imported, folders.__file__, catalogue.__file__, compiled.__file__, checked_playbooks.__file__}:
        assert repr(file) in code
    assert all(f"'{name}', '{importlib.metadata.version(name)}'" in code for name in ("pydantic", "cel-expr-python"))


def test_a_folder_that_this_user_may_not_look_into_is_served_all_the_same(
    folder: Path, checks: Checks, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refused(place: Path) -> str:
        raise PermissionError(13, "Permission denied", str(place))

    load(folder)
    checks.clear()
    monkeypatch.setattr(checked_playbooks, "_text_of", refused)
    assert set(load(folder).playbooks) == {"p", "small"}
    assert checks == ["p", "small"]


def test_a_damaged_file_is_not_believed(folder: Path, checks: Checks) -> None:
    load(folder)
    place = folder / FOLDER / "p.checked.json"
    place.write_text(place.read_text().replace("usage < 0.9", "usage < 0.8"))
    checks.clear()
    playbook = load(folder).playbooks["p"]
    assert checks == ["p"]
    assert playbook.watch_parts("calm", {"usage": 0.85}) == {"low": True}


def test_an_expression_that_does_not_compile_any_more_stops_only_its_state(folder: Path) -> None:
    sound = load(folder).playbooks["p"]
    written = sound.playbook.model_dump(by_alias=True)
    written["states"]["calm"]["watch"]["low"] = "usage < no_such"
    playbook = checked_before(
        Playbook.model_validate(written), sound.settings, source=sound.source, probes=sound.probes
    )
    assert playbook.called("restart") == "restart"
    with pytest.raises(PlaybookError, match="no_such"):
        playbook.watch_parts("calm", {"usage": 0.5})
