"""An incident bot for vLLM on Kubernetes. The road of one alert, station by station:

1. `bot.adapters.web`          POST /alertmanager: who may send, how much, answered only once it is stored
2. `bot.adapters.alertmanager` the webhook becomes alerts, or a 4xx that says what is wrong
3. `bot.flow.accept_alerts`    alerts are stored in the intake, then routing is woken
4. `bot.flow.route_alerts`     which playbook, which target: opens, joins or reopens an incident
5. `bot.flow.advance_run`      drains an incident's inbox in order; decides, commits
6. `bot.domain.incidents.machine`        the decision itself: same run, same event, same decision
7. `bot.flow.perform_effect`   one owed effect under a lease; its outcome is an event again
8. `bot.flow.handlers.read`     effect: read what the state needs
9. `bot.flow.handlers.plan`      effect: what a change would do now, rehearsed by the API server
10. `bot.flow.handlers.show`        effect: card, thread, answers and files in Slack
11. `bot.flow.hear_people`     a press or command is stored, then acknowledged
12. `bot.flow.handlers.judge`     effect: who is that, and may they
13. `bot.domain.approvals.grant`      `grant`: the only maker of permission
14. `bot.flow.handlers.apply`      effect: look again, claim, send; a call can win at most once
15. `bot.flow.handlers.watch`   effect: did it help
16. `bot.domain.reports`        the timeline as Markdown or JSON

Under all of it: `bot.flow.wake` calls at once, `bot.adapters.docket` later, `bot.flow.reconcile` every second and at
start. `bot.flow.ports` says what each of them is promised; `bot.wiring` joins them to the real adapters.
"""
