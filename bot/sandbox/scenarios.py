"""The faults of the demo world: one scenario for each branch of the runbooks that has its own end."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any, Literal

Labels = str | tuple[str, ...]
"""The label to press; of several, the next one each time the question is repeated."""
COMMIT = "(commit the patch)"
"""No label: the patch that the bot handed out last is committed before the question is answered."""


@dataclass(frozen=True)
class Deploy:
    flags: Mapping[str, str | None] = field(default_factory=dict)
    """The value of a switch is empty; None removes a flag."""
    env: Mapping[str, str] = field(default_factory=dict)
    image: str = ""
    """Empty: the same as before."""

    @property
    def words(self) -> list[str]:
        """Flags that are added to the engine's arguments."""
        given = ((flag, value) for flag, value in self.flags.items() if value is not None)
        return [f"{flag}={value}" if value else flag for flag, value in given]


@dataclass(frozen=True)
class Scenario:
    """The fault in the fleet, and which buttons are pressed for whom in the unattended demo."""

    name: str
    what: str
    healthy_load: dict[str, Any]
    trouble_load: dict[str, Any]
    real_load: Mapping[str, Any] | None = None
    """The trouble of real engines, which recompute faster; None: as of simulated ones."""
    fault: dict[str, Any] = field(default_factory=dict)
    """A fault of the replicas in `hits`; empty for none."""
    hits: Literal["one", "node", "all"] = "one"
    """One replica, those on the node that holds the most of them, or all."""
    deployed_before: Mapping[str, str | None] = field(default_factory=dict)
    """Flags that have been set for a long time."""
    kept_by: Literal["", "helm", "argocd", "argocd-self-heal"] = ""
    """The tool that the workload was deployed with; empty: applied by hand."""
    in_repository: bool = False
    """The bot's settings say in which file on GitHub the workload is kept."""
    prefill_seconds: float = 0.0
    """How long a simulated engine takes to compute a token of a prompt, or to recompute one; 0: as captured."""
    gpus_of_others: int = 0
    """GPUs that pods of another namespace hold."""
    quota: Mapping[str, str] = field(default_factory=dict)
    """What a ResourceQuota of the namespace allows; empty: there is none."""
    image: str = ""
    """The engine's image for a long time; empty: that of vLLM 0.32."""
    selector: Mapping[str, str] = field(default_factory=dict)
    """What the Service selects by; empty: a label of its own beside that of the ReplicaSet."""
    created: tuple[tuple[str, Mapping[str, Any]], ...] = ()
    """Objects that have been there for a long time, each with the path of its list."""
    router: Literal["service", "pods"] = "service"
    """What sends the requests: the Service, or a router that watches pods; then there is no Service."""
    node_group: str = ""
    """`MAX:SECONDS`: a node autoscaler adds nodes up to so many, and each takes so long; empty for none."""
    deploy: Deploy | None = None
    """A change that is rolled out at the time of the trouble."""
    alert: str = ""
    """An alert that is raised whatever the engines report, in place of a `rule`."""
    alert_after_seconds: float = 2.0
    answers: Mapping[str, Labels] = field(default_factory=dict)
    """Text of a question to the label of the choice that the scripted approver presses."""
    filled: Mapping[str, str] = field(default_factory=dict)
    """The approver's values for the fields of forms."""
    rule: str = "thrash"
    """What alerting watches; empty if no alert opens the incident."""
    opened_by: str = ""
    """The command that opens it by hand; empty if an alert does."""
    gpu: dict[str, Any] = field(default_factory=dict)
    """A fault of the GPU that one replica holds; empty for none."""
    windows: Mapping[str, str] = field(default_factory=dict)
    """Settings beside `WINDOWS`."""
    healthy_seconds: float = 6.0
    """How long all is well first: a comparison with the time before needs that time."""
    verified_by: str = "verify_calm"
    """The watch that must have held; empty if readings alone decide the end."""
    endings: tuple[str, ...] = ("fixed", "accepted_degraded")
    """How the incident may end."""


PREFILL_SECONDS = 0.0003
"""As much as a token of an answer costs in a batch of 13, as on GPUs with large batches (decision 153)."""
ACCEPT = {
    "Scale llm": "Accept it and close",
    "requests wait longer": "Accept it and close",
    "nobody waits too long": "Look again",
    "Which revision was good?": "It is not the deploy",
}

OVERLOAD = Scenario(
    name="overload",
    what="load rises above what four replicas can serve: a limit ends the thrash, and first tokens stay late",
    healthy_load={"workers": 12},
    # People read an answer before they ask again.
    trouble_load={"workers": 176, "ramp_seconds": 2, "pause_seconds": 6},
    prefill_seconds=PREFILL_SECONDS,
    # The first question comes up where an alert about latency was the first one.
    answers={"So few requests finished": "It is one: go on", **ACCEPT},
)
THRASH = replace(
    OVERLOAD,
    name="thrash",
    what="load rises, and all replicas preempt requests instead of finishing them",
    # Four replicas can serve these people. The burst fills the KV cache, and recomputing takes so much work that the
    # thrash lasts for most of a minute beside a canary, and alone until a limit ends it (decision 168).
    trouble_load={
        "workers": 920,
        "ramp_seconds": 2,
        "burst": 200,
        "pause_seconds": 45,
        "prompt_tokens": [200, 300],
        "output_tokens": [200, 240],
    },
    real_load=OVERLOAD.trouble_load,
    # In ten seconds of a well served load, three requests wait for a second now and then; in five minutes they do not.
    windows={"queue_floor": "5"},
)
ONE_BAD_REPLICA = Scenario(
    name="one-bad-replica",
    what="one replica has lost most of its KV pool and thrashes at a normal share of the requests",
    healthy_load={"workers": 24},
    trouble_load={"workers": 24},
    fault={"kind": "small_pool", "blocks": 32},
    answers=ACCEPT,
)
BAD_NODE = Scenario(
    name="bad-node",
    what="two of four replicas thrash at a normal share of the requests, and only these two run on one node",
    healthy_load={"workers": 24},
    trouble_load={"workers": 24},
    fault={"kind": "small_pool", "blocks": 32},
    hits="node",
    answers={"Still in place:": "Keep it", **ACCEPT},
)
HUNG_ENGINE = Scenario(
    name="hung-engine",
    what="one of four engines hangs: it reports metrics, holds its requests and finishes none",
    healthy_load={"workers": 24},
    trouble_load={"workers": 24},
    fault={"kind": "stuck"},
    rule="",
    alert="VllmReplicaStalled",
    # Ten polls, of which three have to be bad, must have been made before.
    healthy_seconds=30.0,
    alert_after_seconds=20.0,
    answers=ACCEPT,
)
SAME_SELECTOR = Scenario(
    name="same-selector",
    what="one replica thrashes where the Service selects by the ReplicaSet's labels, as most charts do",
    healthy_load={"workers": 24},
    trouble_load={"workers": 24},
    fault={"kind": "small_pool", "blocks": 32},
    selector={"app": "llm"},
    deployed_before={"--shutdown-timeout": None},  # its streams would be cut on SIGTERM
    answers=ACCEPT,
)
ENOUGH = {**OVERLOAD.answers, "Request R": "Accept it and close"}
"""Whatever is proposed against the queue that the limit leaves is declined; only those requests have this button."""
LONG_DEPLOYED = {"others_quiet": "5s"}
"""The tool wrote the workload shortly before the trouble only because the demo is short."""
HELM = replace(
    OVERLOAD,
    name="helm",
    what="load rises on a fleet of a Helm release: it is changed, and the request shows what to commit",
    kept_by="helm",
    windows=LONG_DEPLOYED,
)
ARGOCD = replace(
    OVERLOAD,
    name="argocd",
    what="load rises on a fleet of Argo CD without self-heal: it is changed, and a pull request commits that",
    kept_by="argocd",
    in_repository=True,
    windows=LONG_DEPLOYED,
)
ARGOCD_SELF_HEAL = replace(
    OVERLOAD,
    name="argocd-self-heal",
    what="load rises on a fleet that Argo CD reverts to git: the bot opens a pull request and waits until it is synced",
    kept_by="argocd-self-heal",
    in_repository=True,
    windows=LONG_DEPLOYED,
    answers={"would be reverted": "It is on its way", **ENOUGH},
)
FULL_CLUSTER = replace(
    OVERLOAD,
    name="full-cluster",
    what="load rises where no GPU is free: the fix goes in place, and one replica at a time is missing",
    gpus_of_others=8,
    answers=ENOUGH,
)
FULL_SELF_HEAL = replace(
    ARGOCD_SELF_HEAL,
    name="full-self-heal",
    what="load rises where no GPU is free and Argo CD reverts edits: the patch is handed out and waited for",
    gpus_of_others=8,
    in_repository=False,
    answers={"would be reverted": (COMMIT, "It is on its way"), **ENOUGH},
)
QUOTA = replace(
    OVERLOAD,
    name="quota",
    what="load rises where GPUs are free and a ResourceQuota admits no more pods: the bot knows before it starts",
    quota={"requests.nvidia.com/gpu": "4"},
    answers=ENOUGH,
)
UNKNOWN_VERSION = replace(
    OVERLOAD,
    name="unknown-version",
    what="load rises on a vLLM version that the playbook was not tested on: a note, and no higher risk",
    image="vllm/vllm-openai:v0.33.0",
)
BENCH = "vllm bench serve --base-url $(TARGET_URL) --dataset-name random --random-input-len 96 --random-output-len 160"
LOAD_TEST = {
    "metadata": {"name": "canary-load-test"},
    "spec": {
        "schedule": "0 0 31 2 *",
        "suspend": True,
        "jobTemplate": {
            "spec": {
                "backoffLimit": 0,
                "template": {
                    "spec": {
                        "restartPolicy": "Never",
                        "containers": [
                            {
                                "name": "bench",
                                "image": "vllm/vllm-openai:v0.32.0",
                                "command": f"{BENCH} --num-prompts 16 --max-concurrency 4".split(),
                            }
                        ],
                    }
                },
            }
        },
    },
}
LOAD_TESTED = replace(
    OVERLOAD,
    name="load-tested",
    what="load rises, and a Job load-tests the canary before the rollout is asked for",
    # So few clients that the canary has room for the requests of the test within the target.
    trouble_load={"workers": 96, "ramp_seconds": 2},
    prefill_seconds=0.0,
    created=(("/apis/batch/v1/namespaces/serving/cronjobs", LOAD_TEST),),
    windows={"ttft_target": "8s"},
    answers={**OVERLOAD.answers, "Roll out to every replica": "Load-test the canary first"},
)
GPU_FAULT = Scenario(
    name="gpu-fault",
    what="the GPU of one replica falls off the bus (XID 79); in the end a person finds the hardware well",
    healthy_load={"workers": 12},
    trouble_load={"workers": 12},
    rule="xid",
    gpu={"full_csv": True, "xid": 79},
    answers={"Who took it?": "It was a false alarm"},
    verified_by="recovered",
    endings=("not_applicable",),
)
HOT_NODE = Scenario(
    name="hot-node",
    what="the GPUs that replicas hold on one node are too hot under load",
    healthy_load={"workers": 12},
    trouble_load={"workers": 12},
    rule="heat",
    gpu={"full_csv": True, "hot_under_load": 91.0},
    windows={"cool_for": "6s", "cool_within": "60s", "back_for": "6s", "back_within": "60s"},
    verified_by="again",
)
SLO_BREACH = Scenario(
    name="slo-breach",
    what="more requests come than fit the batches, so first tokens wait in the queue",
    healthy_load={"workers": 40, "prompt_tokens": [8, 12], "output_tokens": [40, 50], "pause_seconds": 0},
    trouble_load={"workers": 316, "prompt_tokens": [8, 12], "output_tokens": [40, 50], "pause_seconds": 0},
    rule="slo",
    # The first time is too early: it gets worse, and that is reverted.
    answers={"Replicas were added": ("Yes: scale back", "Not yet")},
    windows={
        "calm_for": "6s",
        "verify_within": "20s",
        "slow_short": "9s",
        "slow_long": "12s",
        "ttft_target": "100ms",
    },
)
SLOW_REPLICA = Scenario(
    name="slow-replica",
    what="one of four engines takes six times as long for each step, so a tenth of the first tokens is late",
    healthy_load={"workers": 12, "prompt_tokens": [200, 300], "output_tokens": [40, 50]},
    trouble_load={"workers": 12, "prompt_tokens": [200, 300], "output_tokens": [40, 50]},
    prefill_seconds=PREFILL_SECONDS,
    fault={"kind": "slow", "factor": 6.0},
    rule="",
    # The router sends it fewer requests, so the budget burns slowly.
    alert="VllmTTFTBudgetBurn",
    alert_after_seconds=15.0,
    answers=ACCEPT,
    windows={"calm_for": "6s", "verify_within": "60s", "ttft_target": "250ms", "least_late": "4", "useless": "3"},
)
CRASH_LOOP = Scenario(
    name="crash-loop",
    what="a deploy halves the KV pool; one request of full length no longer fits, so the new replica cannot start",
    healthy_load={"workers": 12},
    trouble_load={"workers": 12},
    deploy=Deploy({"--num-gpu-blocks-override": "60"}),
    rule="crash",
    windows={"no_crash_for": "12s", "stays_within": "60s", "stable_for": "5m"},
)
ENGINE_DIES = Scenario(
    name="engine-dies",
    what="an engine dies again and again while it serves, and its container ends with exit code 0 each time",
    healthy_load={"workers": 12},
    trouble_load={"workers": 12},
    fault={"kind": "dies", "after": 20.0},
    rule="crash",
    answers={"What was it?": ("Watch whether it stays up", "Hand over")},
    windows={"no_crash_for": "12s", "stays_within": "60s", "stable_for": "5m"},
    verified_by="",
    endings=("handed_over",),
)
DIES_OF_ITS_GPU = replace(
    ENGINE_DIES,
    name="dies-of-its-gpu",
    what="an engine dies since its GPU fell off the bus (XID 79); users are served before somebody takes the node",
    gpu=GPU_FAULT.gpu,
    answers={"Who took it?": "It is taken"},
    filled={"ticket": "HW-4711", "receiver": "Kim, hardware"},
    verified_by="verify_calm",
    endings=("fixed",),
)
PROBE_FAILS = Scenario(
    name="probe-fails",
    what="an engine hangs, so its liveness probe fails, and its kubelet ends the container",
    healthy_load={"workers": 12},
    trouble_load={"workers": 12},
    fault={"kind": "hangs"},
    rule="",
    alert="VllmCrashLoop",
    windows={"no_crash_for": "12s", "stays_within": "90s", "stable_for": "5m"},
)
FP8_AS_DESIGNED = Scenario(
    name="fp8-as-designed",
    what="a deploy turns on fp8 KV, the pool holds twice the tokens, and somebody only sees that device memory is flat",
    healthy_load={"workers": 24},
    trouble_load={"workers": 24},
    deploy=Deploy({"--kv-cache-dtype": "fp8", "--num-gpu-blocks-override": "256"}),
    rule="",
    opened_by="open kv-compression-no-savings serving/llm",
    filled={"method": "quantised", "read_gauge": "device"},
    windows={"before_window": "12s", "past": "60s"},
    healthy_seconds=20.0,
    verified_by="",
)

# --- further branches of kv-cache-oom ---------------------------------------------------------------------------------

KV_ALERT = "VllmKVCacheThrash"
CALM = {"workers": 12}
STEADY = {"workers": 24}
FULL = {"workers": 160, "ramp_seconds": 2}
DEPLOY_IN_TIME = Scenario(
    name="deploy-in-time",
    what="a deploy takes almost half of the KV pool, and the load that was fine thrashes now",
    healthy_load=STEADY,
    trouble_load=STEADY,
    deploy=Deploy({"--num-gpu-blocks-override": "66"}),
    answers={**ACCEPT, "Which revision was good?": "The one before it"},
    # A tenth of eight milliseconds is noise; a pool of 66 blocks, of which a request takes 19, is full at 86 %.
    windows={"slower": "2", "kv_ceiling": "0.8"},
)
MORE_TRAFFIC = Scenario(
    name="more-traffic",
    what="more requests come than at the same time yesterday, and more replicas have room for them",
    # Short answers of almost one length: four replicas thrash for sure, and five do not.
    healthy_load={"workers": 24, "output_tokens": [220, 240], "pause_seconds": 0.3},
    trouble_load={"workers": 90, "output_tokens": [220, 240], "pause_seconds": 0.3, "ramp_seconds": 2},
    answers={"Replicas were added": "Not yet", **ACCEPT},
    # Yesterday is in the calm time if the traffic is read 12 to 48 seconds after it rose (17 on an idle machine).
    # Samples of half of the window are enough.
    windows={"slower": "2", "load_window": "16s", "yesterday": "48s"},
    healthy_seconds=52.0,
)
AUTOSCALER = replace(
    MORE_TRAFFIC,
    name="autoscaler",
    what="more requests come than at the same time yesterday, no GPU is free, and a node autoscaler adds a node",
    gpus_of_others=8,
    node_group="4:30",
    windows={**MORE_TRAFFIC.windows, "startup_budget": "240s"},
)
LLM = {"apiVersion": "apps/v1", "kind": "Deployment", "name": "llm"}
HPA_AT_MAX = replace(
    MORE_TRAFFIC,
    name="hpa-at-max",
    what="more requests come than at the same time yesterday, and the autoscaler has reached its maximum of replicas",
    created=(
        (
            "/apis/autoscaling/v2/namespaces/serving/horizontalpodautoscalers",
            {"metadata": {"name": "llm"}, "spec": {"scaleTargetRef": LLM, "minReplicas": 2, "maxReplicas": 4}},
        ),
    ),
    # The first time is too early: within its old bounds the fleet is too small, so they are raised again.
    answers={"Replicas were added": "Yes: scale back", "old bounds again": "Raise them again", **ACCEPT},
)
KEDA_AT_MAX = replace(
    HPA_AT_MAX,
    name="keda-at-max",
    what="more requests come than at the same time yesterday, and KEDA's ScaledObject is at its maximum",
    created=(
        (
            "/apis/keda.sh/v1alpha1/namespaces/serving/scaledobjects",
            {
                "metadata": {"name": "llm"},
                "spec": {
                    "scaleTargetRef": {"name": "llm"},
                    "minReplicaCount": 2,
                    "maxReplicaCount": 4,
                    "triggers": [{"type": "prometheus", "metadata": {"query": "sum(vllm:num_requests_waiting)"}}],
                },
            },
        ),
    ),
)
POOL = {
    "apiVersion": "inference.networking.k8s.io/v1",
    "kind": "InferencePool",
    "metadata": {"name": "llm"},
    "spec": {
        "selector": {"matchLabels": {"app": "llm", "serving": "active"}},
        "targetPorts": [{"number": 8000}],
        "endpointPickerRef": {"name": "llm-epp", "port": {"number": 9002}},
    },
}
INFERENCE_POOL = replace(
    ONE_BAD_REPLICA,
    name="inference-pool",
    what="one replica thrashes behind an InferencePool of the Gateway API, and no Service selects the replicas",
    created=(("/apis/inference.networking.k8s.io/v1/namespaces/serving/inferencepools", POOL),),
    router="pods",
    deployed_before={"--shutdown-timeout": None},  # its streams would be cut on SIGTERM
)
UNREADABLE_ROUTER = replace(
    OVERLOAD,
    name="unreadable-router",
    what="all four replicas thrash, and their router finds pods by itself, so that nobody can read where requests go",
    router="pods",
)
SHED_THE_REST = Scenario(
    name="shed-the-rest",
    what="load rises, the cap ends the thrash, and what cannot be served in time is refused",
    healthy_load=CALM,
    trouble_load=FULL,
    answers={
        **ACCEPT,
        "Scale llm": "Refuse what cannot be served",
    },
    windows={"queue_depth": "1", "canary_for": "4s", "calm_for": "6s"},
)
OFFLOADED_IN_VAIN = Scenario(
    name="offloaded-in-vain",
    what="load rises, and KV in host memory is tried on a canary: it thrashes as before and goes; a person takes over",
    healthy_load=CALM,
    trouble_load=FULL,
    answers={"Start one canary": ("Keep preempted blocks in host memory", "Hand over")},
    windows={"canary_within": "10s"},
    verified_by="",
    endings=("handed_over",),
)
EARLY_SIGNS = Scenario(
    name="early-signs",
    what="prompts have become so long that few fit at once: early signs come together, while nothing thrashes yet",
    healthy_load={"arrivals_per_second": 36, "prompt_tokens": [80, 112], "output_tokens": [200, 260]},
    trouble_load={"arrivals_per_second": 36, "prompt_tokens": [1440, 1480], "output_tokens": [200, 260]},
    rule="",
    alert=KV_ALERT,
    alert_after_seconds=22.0,
    answers={
        **ACCEPT,
        "Several early signs": "Treat it as a thrash",
    },
    # The present window must be mostly trouble, and the time before it free of it, even if the bot samples late. The
    # calm lasts longer than the comparison window: its load must not seem less because of a time without clients.
    windows={"load_window": "28s", "yesterday": "60s"},
    healthy_seconds=55.0,
    endings=("accepted_degraded", "fixed"),
)
SHEDDING_ALREADY = Scenario(
    name="shedding-already",
    what="the fleet refuses what it cannot serve and thrashes no more, but an old alert still fires",
    healthy_load=CALM,
    trouble_load=FULL,
    deployed_before={"--max-num-seqs": "7", "--max-num-queued-reqs": "10"},
    # Its queues are short and always full, so about two requests wait, for about two seconds.
    windows={"ttft_target": "5s", "queue_floor": "5"},
    rule="",
    alert=KV_ALERT,
    verified_by="flap",
    endings=("self_cleared",),
)
SICK_NODE = Scenario(
    name="sick-node",
    what="the alert says KV cache, but nothing thrashes; the health of a GPU cannot be read, which stops nothing",
    healthy_load=CALM,
    trouble_load=CALM,
    gpu={"full_csv": True, "xid": 79},
    rule="",
    alert=KV_ALERT,
    verified_by="flap",
    endings=("self_cleared",),
)
CRASHES = Scenario(
    name="crashes",
    what="the alert says KV cache, but an engine ran out of GPU memory and crashed",
    healthy_load=CALM,
    trouble_load=CALM,
    fault={"kind": "cuda_oom"},
    rule="",
    alert=KV_ALERT,
    answers={"No earlier revision": "Hand over"},
    windows={"no_crash_for": "12s", "stays_within": "60s", "stable_for": "5m"},
    verified_by="",
    endings=("handed_over",),
)
BUSY = Scenario(
    name="busy",
    what="two long requests fill a replica's pool and the others wait; nothing is preempted, so it is no thrash",
    healthy_load={"workers": 4, "prompt_tokens": [1950, 1950], "output_tokens": [36, 40]},
    trouble_load={"workers": 40, "prompt_tokens": [1950, 1950], "output_tokens": [36, 40], "pause_seconds": 0},
    deployed_before={"--max-num-seqs": "2"},
    rule="",
    alert=KV_ALERT,
    alert_after_seconds=12.0,
    answers={"requests queue, nothing is preempted": "Hand over", "Scale": "Hand over"},
    verified_by="",
    endings=("handed_over",),
)
BLIND = Scenario(
    name="blind",
    what="the replicas answer users, but no metrics",
    healthy_load=CALM,
    trouble_load=CALM,
    fault={"kind": "metrics_down"},
    hits="all",
    rule="",
    alert=KV_ALERT,
    answers={"metrics cannot be read": "Hand over"},
    alert_after_seconds=12.0,
    windows={"gather_within": "12s"},
    verified_by="",
    endings=("handed_over",),
)

# --- further branches of kv-compression-no-savings --------------------------------------------------------------------

BY_HAND = "open kv-compression-no-savings serving/llm"
COMPRESSION = {"before_window": "12s", "past": "60s", "rollout_settles": "4s"}
SHORT_REQUESTS = {"workers": 24, "output_tokens": [100, 160]}
BY_MEMORY = {"--num-gpu-blocks-override": None, "--kv-cache-memory-bytes": str(128 * 32 * 2048)}
"""As large a pool as before, but counted in bytes: a smaller dtype then makes room for more tokens."""
SCORE = {"eval": "gsm8k", "link": "https://evals.example/17", "baseline": "0.9"}
SCORES = {"does this very configuration score": "It scores", "cannot be compared": "It is worth it"}
NEVER_SET = Scenario(
    name="never-set",
    what="somebody believes that KV compression is on; no engine has it",
    healthy_load=STEADY,
    trouble_load=STEADY,
    rule="",
    opened_by=BY_HAND,
    answers={"with --kv-cache-dtype fp8": "Change nothing"},
    filled={"method": "unsure", "read_gauge": "usage"},
    windows=COMPRESSION,
    verified_by="",
    endings=("not_applicable",),
)
SET_FP8 = Scenario(
    name="set-fp8",
    what="somebody believes that KV compression is on; now it is set, tried, measured and rolled out",
    healthy_load=STEADY,
    trouble_load=STEADY,
    deployed_before=BY_MEMORY,
    rule="",
    opened_by=BY_HAND,
    answers=SCORES,
    filled={"method": "unsure", "read_gauge": "usage", "oom_tokens": "1000", "score": "0.9", **SCORE},
    windows=COMPRESSION,
)
FP8_LOSES = Scenario(
    name="fp8-loses",
    what="fp8 KV is tried on a canary, and the answers are worse than accepted",
    healthy_load=STEADY,
    trouble_load=STEADY,
    deployed_before=BY_MEMORY,
    rule="",
    opened_by=BY_HAND,
    answers=SCORES,
    filled={"method": "unsure", "read_gauge": "usage", "score": "0.5", **SCORE},
    windows=COMPRESSION,
    verified_by="",
    endings=("backed_out",),
)
FP8_NOT_DOUBLED = Scenario(
    name="fp8-not-doubled",
    what="fp8 KV is on and the pool holds no more, because its blocks were fixed by another flag",
    healthy_load=STEADY,
    trouble_load=STEADY,
    deploy=Deploy({"--kv-cache-dtype": "fp8"}),
    rule="",
    opened_by=BY_HAND,
    filled={"method": "quantised", "read_gauge": "capacity"},
    windows=COMPRESSION,
    healthy_seconds=20.0,
    verified_by="",
)
EAGER_FALLBACK = Scenario(
    name="eager-fallback",
    what="with a plugin that evicts tokens, attention falls back to Flex: one sign is read, and a person saw the other",
    healthy_load=STEADY,
    trouble_load=STEADY,
    deploy=Deploy({"--attention-backend": "FLEX_ATTENTION"}, env={"ENABLE_TRIATTENTION": "1"}),
    rule="",
    opened_by=BY_HAND,
    answers={"One sign of an eager fallback": "Yes: turn it off"},
    filled={"method": "eviction", "read_gauge": "latency"},
    windows=COMPRESSION,
    healthy_seconds=20.0,
    verified_by="off_verify",
    endings=("backed_out",),
)
SCATTERED = Scenario(
    name="scattered",
    what="a plugin evicts tokens, and since the survivors are scattered no block ever comes back",
    healthy_load=STEADY,
    trouble_load=STEADY,
    deploy=Deploy(env={"ENABLE_TRIATTENTION": "1"}),
    rule="",
    opened_by=BY_HAND,
    answers={"Do blocks come back?": "They do not"},
    filled={"method": "compaction", "read_gauge": "capacity"},
    windows={**COMPRESSION, "budget_tokens": "256"},
    healthy_seconds=20.0,
    verified_by="off_verify",
    endings=("backed_out",),
)
COMPACTS = Scenario(
    name="compacts",
    what="a plugin does free blocks, but only of requests longer than those that come: one long probe shows it",
    healthy_load=SHORT_REQUESTS,
    trouble_load=SHORT_REQUESTS,
    deploy=Deploy(
        flags={"--no-enable-prefix-caching": ""},  # the plugin cannot share blocks
        env={
            "ENABLE_TRIATTENTION": "1",
            "TRIATTN_RUNTIME_KV_BUDGET": "256",
            "TRIATTN_RUNTIME_DIVIDE_LENGTH": "32",
        },
        image="sandbox.registry/serving/vllm-triattention:v0.32.0",
    ),
    rule="",
    opened_by=BY_HAND,
    answers=SCORES,
    filled={"method": "compaction", "read_gauge": "capacity"},
    windows={**COMPRESSION, "budget_tokens": "256"},
    healthy_seconds=20.0,
)
KIND_UNKNOWN = Scenario(
    name="kind-unknown",
    what="an image that nobody knows is said to compress, and nothing in it says how",
    healthy_load=STEADY,
    trouble_load=STEADY,
    deploy=Deploy(image="sandbox.registry/internal/engine:v0.32.0"),
    rule="",
    opened_by=BY_HAND,
    answers={"Which kind of compression": "Nobody knows"},
    filled={"method": "unsure", "read_gauge": "capacity"},
    windows=COMPRESSION,
    verified_by="",
    endings=("handed_over",),
)
SCENARIOS = {
    scenario.name: scenario
    for scenario in (
        *(
            THRASH,
            OVERLOAD,
            ONE_BAD_REPLICA,
            BAD_NODE,
            HUNG_ENGINE,
            SAME_SELECTOR,
            HELM,
            ARGOCD,
            ARGOCD_SELF_HEAL,
            FULL_CLUSTER,
            FULL_SELF_HEAL,
            QUOTA,
            UNKNOWN_VERSION,
            LOAD_TESTED,
            DEPLOY_IN_TIME,
            MORE_TRAFFIC,
            AUTOSCALER,
            HPA_AT_MAX,
            KEDA_AT_MAX,
            INFERENCE_POOL,
            UNREADABLE_ROUTER,
            SHED_THE_REST,
            OFFLOADED_IN_VAIN,
            EARLY_SIGNS,
        ),
        *(SHEDDING_ALREADY, SICK_NODE, CRASHES, BUSY, BLIND),
        *(FP8_AS_DESIGNED, NEVER_SET, SET_FP8, FP8_LOSES, FP8_NOT_DOUBLED, KIND_UNKNOWN),
        *(EAGER_FALLBACK, SCATTERED, COMPACTS),
        *(GPU_FAULT, HOT_NODE, SLO_BREACH, SLOW_REPLICA, CRASH_LOOP, ENGINE_DIES, DIES_OF_ITS_GPU, PROBE_FAILS),
    )
}
