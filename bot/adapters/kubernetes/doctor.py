"""Checks whether the cluster answers and grants the bot what its playbooks may propose.

Permissions for changes are required in the namespaces where the bot works; cluster-wide read permissions are optional,
and nodes may be in other hands.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from bot.adapters.kubernetes.client import KubernetesClient, NoAnswerError
from bot.adapters.kubernetes.credentials import NotSentError
from bot.adapters.kubernetes.paths import path_of
from bot.adapters.kubernetes.permissions import Checked, Permission, check, needed
from bot.domain.kernel.errors import ClusterError
from bot.domain.kernel.finding import Finding, broken, fine, weak

ABOUT = "kubernetes"


async def access(
    client: KubernetesClient,
    *,
    verbs: Iterable[str],
    options: Iterable[str] = (),
    namespaces: Sequence[str] = (),
    sampled: Sequence[tuple[str, str, str]] = (),
    reads_only: bool = False,
) -> tuple[Finding, ...]:
    """`verbs` are the changes that the playbooks use, `options` the additions from the settings.

    `sampled`: the workloads to scrape all the time, as namespace, kind and name. `reads_only`: the bot only observes,
    and needs no permission to change. `namespaces` are checked; without any, all of them at once; if that is refused,
    those of `sampled`.
    """
    wanted = [each for each in needed(verbs, options=options) if not (reads_only and each.changes)]
    inside = [each for each in wanted if not each.is_cluster_wide]
    try:
        version = await client.request("GET", "/version")
        if not version.is_ok:
            raise ClusterError(version.message)
        body = version.body if isinstance(version.body, dict) else {}
        reached = fine(ABOUT, f"answers, version {body.get('gitVersion', 'unknown')}")
        outside = await check(client, [each for each in wanted if each.is_cluster_wide], namespace="")
        asked = namespaces or await _where(client, inside, sorted({each[0] for each in sampled}))
        judged = [judge(await check(client, inside, namespace=one), namespace=one) for one in asked]
        judged += await _absent(client, sampled)
    except (NotSentError, NoAnswerError, ClusterError) as error:
        return (broken(ABOUT, str(error), "Correct the kubernetes settings, or reach the API server from here."),)
    nowhere = () if asked else (weak(ABOUT, NOT_EVERYWHERE, "Ask about each with --namespace, separated by commas."),)
    return (reached, *judged, *nowhere, *of_cluster(outside))


async def _absent(client: KubernetesClient, sampled: Sequence[tuple[str, str, str]]) -> list[Finding]:
    paths = {each: path_of(each[1], each[0], each[2]) for each in sampled}
    # What may not be read is a missing permission, which is reported as such.
    absent = ["/".join(each) for each, path in paths.items() if (await client.request("GET", path)).status == 404]
    what = f"sampling.workloads names workloads that are not there, so they have no history: {', '.join(absent)}"
    return [weak(ABOUT, what, "Correct them; what is no Deployment is NAMESPACE/KIND/NAME.")] if absent else []


NOT_EVERYWHERE = "may not work in all namespaces, and which ones it serves is not known"


async def _where(client: KubernetesClient, inside: Sequence[Permission], known: Sequence[str]) -> Sequence[str]:
    """All namespaces at once if the bot may work in all, else the known ones."""
    everywhere = await check(client, inside, namespace="")
    return [""] if all(each.is_allowed for each in everywhere) else known


def judge(checked: Iterable[Checked], *, namespace: str) -> Finding:
    every = list(checked)
    where = f"in namespace {namespace}" if namespace else "in all namespaces"
    if refused := _refused(every):
        remedy = (
            "Apply deploy/kustomize/serving there (or observe, while the bot only observes); proxy and exec too where "
            "the settings need them."
        )
        return broken(ABOUT, f"may not, {where}: {refused}", remedy)
    return fine(ABOUT, f"has all {len(every)} permissions that the playbooks need, {where}")


def of_cluster(checked: Iterable[Checked]) -> tuple[Finding, ...]:
    """Missing permissions outside of single namespaces: less is known then, and nodes are handed over to others."""
    every = list(checked)
    found = []
    if refused := _refused(each for each in every if each.permission.verb in ("get", "list")):
        what = f"may not, in the whole cluster: {refused}; free accelerators and faults of nodes stay unknown"
        found.append(weak(ABOUT, what, "Bind the ClusterRole incident-bot-cluster."))
    if refused := _refused(each for each in every if each.permission.verb not in ("get", "list")):
        what = f"may not, in the whole cluster: {refused}; a node is then handed over to people"
        found.append(weak(ABOUT, what, "Apply deploy/kustomize/nodes where the bot may cordon nodes."))
    return tuple(found)


def _refused(checked: Iterable[Checked]) -> str:
    return ", ".join(str(each.permission) for each in checked if not each.is_allowed)
