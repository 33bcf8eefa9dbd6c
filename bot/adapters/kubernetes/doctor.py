"""Whether the cluster answers and lets the bot do what its playbooks may propose."""

from __future__ import annotations

from collections.abc import Iterable

from bot.adapters.kubernetes.client import KubernetesClient, NoAnswerError
from bot.adapters.kubernetes.credentials import NotSentError
from bot.adapters.kubernetes.permissions import Checked, check, needed
from bot.domain.errors import ClusterError
from bot.domain.finding import Finding, broken, fine

ABOUT = "kubernetes"


async def access(
    client: KubernetesClient, *, verbs: Iterable[str], options: Iterable[str] = (), namespace: str
) -> tuple[Finding, ...]:
    """`verbs` are the changes that the playbooks use, `options` what the settings add; no namespace asks about all."""
    try:
        version = await client.request("GET", "/version")
        if not version.is_ok:
            raise ClusterError(version.message)
        said = version.body if isinstance(version.body, dict) else {}
        reached = fine(ABOUT, f"answers, version {said.get('gitVersion', 'unknown')}")
        checked = await check(client, needed(verbs, options=options), namespace=namespace)
    except (NotSentError, NoAnswerError, ClusterError) as error:
        return (broken(ABOUT, str(error), "Correct the kubernetes settings, or reach the API server from here."),)
    return (reached, judge(checked, namespace=namespace))


def judge(checked: Iterable[Checked], *, namespace: str) -> Finding:
    every = list(checked)
    where = f"in namespace {namespace}" if namespace else "in all namespaces"
    refused = [str(each.permission) for each in every if not each.is_allowed]
    if refused:
        remedy = "Grant it in the bot's Role or ClusterRole; with roles in some namespaces only, ask with --namespace."
        return broken(ABOUT, f"may not, {where}: {', '.join(refused)}", remedy)
    return fine(ABOUT, f"has all {len(every)} permissions that the playbooks need, {where}")
