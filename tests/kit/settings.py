"""The smallest settings that are enough."""

from __future__ import annotations

ENOUGH = {
    "REDIS_URL": "redis://:s3cret-redis@localhost:6379/0",
    "SLACK_BOT_TOKEN": "s3cret-xoxb",
    "SLACK_SIGNING_SECRET": "s3cret-signing",
    "INCIDENT_BOT_SLACK_CHANNEL": "C0INC",
    "INCIDENT_BOT_ALERTMANAGER_BEARER_TOKEN": "s3cret-bearer",
    "INCIDENT_BOT_KUBERNETES_IN_CLUSTER": "true",
    "INCIDENT_BOT_APPROVALS_USER_GROUP": "S0SERVING",
}
