"""Probes for crashes and for the composition of answers: only data from the pods, no assumptions."""

import pytest

from bot.domain.cluster.snapshot import Obj
from bot.domain.signals.trend import DAY_SECONDS, trend_of
from bot.probes.catalogue import PROBES
from tests.probes.test_engine_probes import OPENED, Logs, ask, at, pod, restarted

pytestmark = pytest.mark.fast


async def test_a_replica_that_is_not_ready_has_not_been_up() -> None:
    reading = await ask("crash_scene", restarted("a", seconds=-60))
    assert (reading.fields["crashed"], reading.fields["steady_for"]) == (1.0, 0.0)
    assert reading.fields["exit_code"] == 1.0
    assert reading.fields["names"] == "a (exit 1, once)"
    assert reading.detail == "a: Error (exit 1), once"


async def test_all_have_been_up_for_as_long_as_the_youngest() -> None:
    ready = {"type": "Ready", "status": "True"}
    pods = [pod(name, state={"running": {"startedAt": at(-age)}}) for name, age in (("a", 7200), ("b", 1800))]
    for one in pods:
        one["status"]["conditions"] = [ready]
    reading = await ask("crash_scene", *pods)
    assert (reading.fields["steady_for"], reading.fields["oldest"], reading.fields["oldest_hours"]) == (1800, "a", 2)
    assert "lived" in reading.unknown_parts


async def test_flags_that_are_gone_ignored_or_risky_are_distinguished() -> None:
    flags = ("--swap-space", "4", "--trust-remote-code", "--gpu-memory-utilization", "0.9")
    reading = await ask("flag_hygiene", pod("a", *flags, "--kv-cache-memory-bytes", "8G"), logs=Logs({}))
    assert "--swap-space" in str(reading.fields["removed"])
    assert "--gpu-memory-utilization is ignored" in str(reading.fields["ignored"])
    assert "--trust-remote-code" in str(reading.fields["risky"])


async def test_expandable_segments_do_not_fit_several_ranks() -> None:
    reading = await ask("flag_hygiene", pod("a", "--tensor-parallel-size", "2"))
    assert (reading.fields["expandable"], reading.fields["expandable_fits"]) == (False, False)


@pytest.mark.parametrize(
    ("variables", "settings"),
    [
        pytest.param({}, "expandable_segments:True", id="nothing-set"),
        pytest.param(
            {"PYTORCH_CUDA_ALLOC_CONF": "max_split_size_mb:512"}, "max_split_size_mb:512,expandable_segments:True",
            id="keeps-the-others",
        ),
        pytest.param(
            {"PYTORCH_ALLOC_CONF": "roundup_power2_divisions:[256:1,512:2],expandable_segments:False",
             "PYTORCH_CUDA_ALLOC_CONF": "max_split_size_mb:512"},
            "roundup_power2_divisions:[256:1,512:2],expandable_segments:True", id="the-name-that-wins",
        ),
        pytest.param({"PYTORCH_HIP_ALLOC_CONF": ""}, "expandable_segments:True", id="empty"),
    ],
)  # fmt: skip
async def test_segments_that_grow_keep_the_other_settings_of_the_allocator(
    variables: dict[str, str], settings: str
) -> None:
    one = pod("a")
    one["spec"]["containers"][0]["env"] = [{"name": name, "value": value} for name, value in variables.items()]
    assert (await ask("flag_hygiene", one)).fields["expandable_settings"] == settings


async def test_a_digest_changes_with_what_changes_the_answers_and_not_with_the_port() -> None:
    plain, moved, other = [
        (await ask("served_config", pod("a", *flags))).fields["digest"]
        for flags in ((), ("--port", "9000"), ("--kv-cache-dtype", "fp8"))
    ]
    assert plain == moved != other


@pytest.mark.parametrize(
    "command",
    [
        pytest.param(["vllm", "serve", "m", "--seed=1"], id="words"),
        pytest.param(["sh", "-c", "exec vllm serve m --seed=1"], id="script"),
        pytest.param(["python3", "-m", "vllm.entrypoints.openai.api_server", "--model=m"], id="flag"),
        pytest.param(["env", "serve", "vllm", "serve", "m"], id="behind-another-word"),
    ],
)
async def test_the_model_is_read_wherever_the_command_names_it(command: list[str]) -> None:
    one = pod("a")
    one["spec"]["containers"][0] |= {"command": command, "args": []}
    assert (await ask("served_config", one)).fields["model"] == "m"


@pytest.mark.parametrize("args", [["m", "--seed=1"], ["serve", "m"], ["--model", "m"]])
async def test_the_model_is_read_from_the_arguments_of_the_images_entrypoint(args: list[str]) -> None:
    one = pod("a")
    one["spec"]["containers"][0] |= {"command": None, "args": args}
    assert (await ask("served_config", one)).fields["model"] == "m"


async def test_pods_that_a_rollout_is_ending_do_not_make_the_replicas_differ() -> None:
    old, new = pod("old", template="t1"), pod("new", "--kv-cache-dtype", "fp8", template="t2")
    assert "the replicas differ" in (await ask("served_config", old, new)).unknown
    old["metadata"]["deletionTimestamp"] = at(-10)
    for probe, part in (
        ("served_config", "digest"),
        ("compression_method", "kind"),
        ("engine_flags", "kv_cache_dtype"),
    ):
        together, alone = await ask(probe, old, new), await ask(probe, new)
        assert together.fields[part] == alone.fields[part], probe


async def test_a_compression_that_a_config_map_turns_on_is_known() -> None:
    engine = pod("a", "--config", "/etc/vllm/flags.yaml")
    engine["spec"]["volumes"] = [{"name": "flags", "configMap": {"name": "llm-flags"}}]
    engine["spec"]["containers"][0] |= {
        "volumeMounts": [{"name": "flags", "mountPath": "/etc/vllm"}],
        "envFrom": [{"configMapRef": {"name": "llm-cache"}}],
    }
    config_maps = {
        "llm-flags": {"data": {"flags.yaml": "kv-cache-dtype: fp8\n"}},
        "llm-cache": {"data": {"LMCACHE_MAX_LOCAL_CPU_SIZE": "20"}},
    }
    found = (await ask("compression_method", engine, config_maps=config_maps)).fields
    assert (found.get("kind"), found.get("offloads")) == ("quantised_kv", True)


async def test_a_workload_whose_pods_all_leave_is_still_read() -> None:
    last = pod("last")
    last["metadata"]["deletionTimestamp"] = at(-10)
    assert "digest" in (await ask("served_config", last)).fields


async def test_nobody_answered_and_no_revision_shows_when_it_was_turned_on() -> None:
    reading = await ask("compression_since", pod("a", "--kv-cache-dtype", "fp8"))
    assert "nobody said" in reading.unknown
    assert set(PROBES["compression_since"].kinds) == {"by", "hours", "same_image", "changed", "revision"}


def revision(number: int, *args: str, seconds: float, image: str = "vllm/vllm-openai:v0.32.0") -> Obj:
    template = pod("of a template", *args, image=image)
    return {
        "metadata": {
            "name": f"rs-{number}",
            "uid": f"rs-{number}",
            "creationTimestamp": at(seconds),
            "annotations": {"deployment.kubernetes.io/revision": str(number)},
            "ownerReferences": [{"kind": "Deployment", "uid": "d", "controller": True}],
        },
        "spec": {"template": {"metadata": {}, "spec": template["spec"]}},
    }


FP8 = ("--kv-cache-dtype", "fp8")


async def test_it_was_turned_on_by_the_newest_revision_that_shows_it_after_one_without() -> None:
    revisions = [
        revision(1, seconds=-90_000), revision(2, *FP8, seconds=-7200), revision(3, *FP8, "--seed", "1", seconds=-60),
    ]  # fmt: skip
    reading = await ask("compression_since", pod("a", *FP8), revisions=revisions)
    assert (reading.fields["by"], reading.fields["hours"], reading.at) == ("the rollout", 2.0, OPENED - 7200)
    assert reading.fields["same_image"] is True
    assert "--kv-cache-dtype" in str(reading.fields["changed"])
    assert reading.fields["revision"] == 1, "where it is off again"


async def test_another_image_with_it_leaves_before_and_after_not_comparable() -> None:
    revisions = [revision(1, seconds=-90_000, image="vllm/vllm-openai:v0.31.0"), revision(2, *FP8, seconds=-7200)]
    assert (await ask("compression_since", pod("a", *FP8), revisions=revisions)).fields["same_image"] is False


async def test_what_a_person_says_comes_before_the_rollout() -> None:
    revisions = [revision(1, seconds=-90_000), revision(2, *FP8, seconds=-7200)]
    parameters = {"said": ["forms.opening.enabled_at", "forms.when_enabled.at"]}
    moments = {"forms.when_enabled.at": OPENED - 36_000}
    reading = await ask("compression_since", pod("a"), revisions=revisions, moments=moments, parameters=parameters)
    assert (reading.fields["by"], reading.fields["hours"], reading.at) == ("a person", 10.0, OPENED - 36_000)


async def test_a_moment_that_is_still_to_come_is_no_beginning() -> None:
    parameters = {"said": "forms.when_enabled.at"}
    reading = await ask(
        "compression_since", pod("a"), moments={"forms.when_enabled.at": OPENED + 60}, parameters=parameters
    )
    assert "not in the past" in reading.unknown


async def test_the_last_words_say_what_would_fit() -> None:
    line = (
        "ValueError: To serve at least one request with the models's max seq len (8192), (1.0 GiB KV cache is needed, "
        "which is larger than the available KV cache memory (0.5 GiB). the estimated maximum model length is 4064."
    )
    reading = await ask("last_words", restarted("a", seconds=-60), logs=Logs({"a/previous": line, "a": ""}))
    assert (reading.fields["why"], reading.fields["fits_tokens"]) == ("model_len", 4064.0)


def test_a_steady_loss_is_a_trend_and_a_sawtooth_is_none() -> None:
    steady = trend_of([(hour * 3600.0, -2.0 * hour / 24) for hour in range(25)])
    sawtooth = trend_of([(hour * 3600.0, float(hour % 2)) for hour in range(25)])
    assert steady is not None
    assert sawtooth is not None
    assert (round(steady.per_day, 6), round(steady.fit, 6)) == (-2.0, 1.0)
    assert sawtooth.fit < 0.1
    assert DAY_SECONDS == 86400.0
