"""An incident bot for vLLM on Kubernetes: an alert opens an incident, a playbook diagnoses it, people approve changes.

The path of an alert:

- `bot.adapters.web`                         POST /alertmanager: checks sender and size, answers once it is stored
- `bot.adapters.alertmanager`                turns the webhook into alerts, or into a 4xx with the reason
- `bot.flow.accept_alerts`                   stores alerts in the intake and wakes routing
- `bot.flow.route_alerts`                    picks cluster, playbook and target; opens, extends or reopens an incident
- `bot.adapters.redis.store`                 keeps the run, its inbox, its timeline and its effects, in Lua scripts
- `bot.flow.advance_run`                     drains an incident's inbox in order, decides, commits
- `bot.domain.incidents.machine`             decides: the same run and the same event give the same decision
- `bot.flow.perform_effect`                  performs one owed effect under a lease; its outcome is an event
- `bot.flow.handlers.read`                   effect: read what the state needs, from engines, Prometheus and the cluster
- `bot.flow.read_signals`                    turns samples and probes into readings, or into "unknown" with a reason
- `bot.probes.catalogue`                     every probe, each declared in one file; what playbooks read besides metrics
- `bot.flow.handlers.plan`                   effect: plan a change, and let the API server check it in a dry run
- `bot.domain.changes.catalogue`             every verb, each declared in one file of `bot.domain.changes.verbs`
- `bot.flow.handlers.show`                   effect: bring card, thread and files up to date
- `bot.adapters.slack.outbound.messenger`    posts each message once, and edits it afterwards
- `bot.flow.handlers.apply`                  effect: check again, claim, send; a call can win at most once
- `bot.adapters.kubernetes.writer`           the only module that changes the cluster; it requires a grant
- `bot.flow.handlers.watch`                  effect: watch whether the change helped
- `bot.domain.reports`                       the timeline as Markdown, JSON or a page

The path of a button press or a command:

- `bot.adapters.slack.inbound.app`           receives it over HTTP or Socket Mode, verifies it, answers within 3 s
- `bot.adapters.slack.inbound.commands`      reads `/incident …` and answers those that need no incident
- `bot.flow.receive_input`                   stores it as an event before it is acknowledged
- `bot.flow.advance_run`                     takes it from the inbox, in order with everything else
- `bot.flow.handlers.judge`                  effect: who pressed, and whether they are allowed to, read at that moment
- `bot.adapters.slack.people`                asks Slack for the account and the teams
- `bot.domain.approvals.grant`               `grant`: the only function that grants permission

Both are woken by `bot.flow.wake`, and by `bot.flow.reconcile` every second and at start.
`bot.flow.ports` defines the contract of each part; `bot.flow.clusters` has the parts of each cluster. `bot.runtime`
builds the loop on these ports, for the bot and for its tests; `bot.wiring` connects it to the real adapters.
"""
