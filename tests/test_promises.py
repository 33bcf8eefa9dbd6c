"""The promises of the README, each with the tests that would fail if it broke. A promise without one is a fault."""

from __future__ import annotations

import ast
import re
from datetime import timedelta
from functools import cache
from pathlib import Path

import pytest

from bot.domain.approvals.repeats import REMEMBERED_SECONDS
from bot.domain.incidents.impact import TTFT_FACTOR, WAITING_FACTOR
from bot.flow.circuit import OPENS_AFTER
from bot.settings import Breaker

ROOT = Path(__file__).parent.parent
README = (ROOT / "README.md").read_text()
KEPT_BY: dict[str, tuple[str, ...]] = {
    "Alerts and button presses are persisted in Redis before they are acknowledged": (
        "end_to_end/test_crashes.py::test_crashes_at_the_worst_moments_neither_lose_nor_repeat_anything",
        "adapters/test_web.py::test_an_accepted_webhook_is_stored_before_the_200",
        "adapters/test_web.py::test_no_storage_is_a_503_that_asks_to_send_again",
        "adapters/redis/test_store.py::test_no_answer_is_reported_and_nothing_is_taken_for_stored",
        "adapters/redis/test_frozen.py::test_probes_and_senders_get_an_error_while_redis_is_frozen",
        "adapters/test_durability.py::test_a_weaker_setting_is_graded",
        "flow/test_receive_input.py::test_a_press_is_stored_once_and_wakes_its_incident",
    ),
    "No change without a grant": (
        "domain/approvals/test_grant.py::test_nothing_but_grant_makes_an_approval",
        "domain/approvals/test_grant.py::test_an_approval_is_never_serialised",
        "domain/approvals/test_grant.py::test_a_plans_digest_covers_what_is_approved_and_not_the_circumstances",
        "adapters/kubernetes/test_writer.py::test_a_call_that_is_not_in_the_approved_plan_is_not_sent",
        "flow/test_any_presses.py::test_no_history_applies_what_people_did_not_let_happen",
        "flow/test_apply_call.py::test_without_enough_presses_nothing_is_sent",
        "flow/test_apply_call.py::test_a_plan_that_has_become_another_one_is_asked_for_again",
        "flow/test_apply_call.py::test_a_change_without_its_reason_is_not_made",
        "flow/test_apply_call.py::test_what_was_granted_is_asked_again_where_more_would_be_asked_for",
        "domain/incidents/machine/test_advance.py::test_an_expired_request_is_never_applied_later",
        "domain/incidents/machine/test_advance.py::test_a_request_is_decided_once",
    ),
    "A mutating call takes effect at most once": (
        "flow/test_crash_points.py::test_a_crash_at_any_step_changes_nothing_that_lasts",
        "flow/test_any_interleaving.py::test_in_any_interleaving_each_call_wins_once",
        "flow/test_two_bots.py::test_two_bots_do_each_call_and_each_message_once",
        "flow/test_apply_call.py::test_after_a_lost_reply_the_cluster_is_asked_and_the_call_is_not_sent_again",
        "flow/test_apply_call.py::test_what_is_unclear_after_three_checks_is_a_question_for_people",
        "flow/test_apply_call.py::test_a_call_that_was_carried_out_while_it_was_sent_again_is_done_and_its_undo_is_kept",
        "adapters/redis/test_store.py::test_a_claim_that_no_replica_confirms_is_no_claim",
    ),
    'Missing data is "unknown"': (
        "domain/playbooks/test_expression.py::test_what_cannot_be_decided_is_unknown_with_its_reason",
        "domain/incidents/machine/test_advance.py::test_an_unknown_verdict_is_no_verdict",
        "domain/changes/test_rollback_and_undo.py::test_what_cannot_be_read_is_not_taken_for_taken_back",
        "domain/incidents/test_impact.py::test_what_was_not_sampled_is_unknown_and_not_zero",
        "adapters/vllm/test_vllm_metrics.py::test_absent_is_absent_and_not_zero",
        "adapters/redis/test_levels.py::test_a_storage_that_is_away_leaves_its_levels_out_and_the_counters_in",
    ),
    "A fix is verified only under load": (
        "domain/playbooks/test_kv_cache_oom.py::test_load_is_what_is_asked_for_and_not_what_gets_done",
        "domain/playbooks/test_kv_cache_oom.py::test_the_request_for_the_fleet_has_what_the_canary_paid",
        "domain/playbooks/test_kv_cache_oom.py::test_the_verdict_has_what_the_fleet_paid",
        "domain/playbooks/test_kv_cache_oom.py::test_a_pool_with_room_is_not_enough_where_users_wait",
        "domain/reports/test_statistics.py::test_a_canary_that_was_removed_fixed_nothing",
    ),
    "Waiting never mutes a workload": (
        "flow/test_parked.py::test_over_days_an_unanswered_incident_never_mutes_its_workload",
        "flow/test_parked.py::test_a_parked_incident_reminds_people_every_day",
        "flow/test_parked.py::test_an_alert_that_waits_in_the_inbox_as_the_incident_parks_opens_a_fresh_one",
    ),
    "The most urgent trouble goes first": (
        "flow/test_more_urgent.py::test_an_xid_takes_over_while_a_request_waits_and_calls_people",
        "flow/test_more_urgent.py::test_the_thrash_is_taken_up_again_after_the_fault",
        "domain/incidents/machine/test_diverts.py::test_a_change_between_its_calls_is_finished_first",
    ),
    "Incidents close themselves once the trouble is gone": (
        "flow/test_parked.py::test_an_incident_whose_trouble_went_away_ends_by_itself",
        "domain/incidents/machine/test_calm.py::test_one_look_that_is_not_calm_begins_the_time_again",
        "domain/incidents/machine/test_calm.py::test_a_canary_that_the_bot_left_is_for_people",
        "domain/incidents/machine/test_calm.py::test_without_load_a_change_is_not_credited",
    ),
    "One change at a time": (
        "adapters/redis/test_store.py::test_an_incident_is_opened_only_while_its_target_has_none",
        "flow/test_alert_histories.py::test_no_history_of_alerts_hides_an_incident_or_swallows_an_alert",
        "adapters/redis/test_store.py::test_one_incident_at_a_time_changes_a_workload",
        "flow/test_apply_call.py::test_the_workload_stays_leased_for_as_long_as_its_rollout_takes",
        "flow/test_apply_call.py::test_an_open_breaker_lets_no_further_change_pass",
        "flow/test_node_breaker.py::test_after_two_other_nodes_within_the_hour_it_is_refused",
        "flow/test_interference.py::test_a_scale_by_somebody_else_stops_the_run_before_its_next_call",
        "flow/test_apply_call.py::test_a_halt_stops_the_call_and_a_resume_sends_it",
        "flow/test_keep_halts.py::test_a_halt_of_all_is_one_write_and_reaches_incidents_a_bounded_number_a_round",
    ),
    "A rollout that hurts the other replicas stops": (
        "domain/incidents/machine/test_stopped.py::test_it_sends_nothing_and_asks_with_what_rose",
        "domain/incidents/machine/test_stopped.py::test_that_kubernetes_goes_on_by_itself_is_shown_unless_the_rollout_is_held",
    ),
    "Slack outages silence no incident": (
        "flow/test_slack_refuses.py::test_an_incident_goes_on_once_slack_lets_the_bot_in_again",
        "flow/test_slack_refuses.py::test_a_request_that_cannot_be_posted_expires_all_the_same",
        "adapters/slack/test_people.py::test_who_could_halt_can_halt_while_slack_does_not_answer",
        "cli/test_kill_switch.py::test_everything_is_halted_and_resumed_with_a_name_and_a_reason",
    ),
    "A stuck incident": (
        "flow/test_advance_run.py::test_an_event_that_fails_three_times_is_set_aside_and_asks_a_person",
        "flow/test_advance_run.py::test_a_stuck_incident_does_not_block_another",
        "flow/test_advance_run.py::test_a_run_whose_playbook_no_longer_compiles_says_so_and_can_be_closed",
        "flow/test_route_alerts.py::test_an_alert_that_cannot_be_routed_is_set_aside_and_holds_up_no_other",
    ),
    "A dependency that does not answer": (
        "flow/test_lanes.py::test_a_press_is_judged_while_sixty_incidents_wait_for_a_frozen_api_server",
        "flow/test_lanes.py::test_what_is_stuck_leaves_room_for_other_work",
        "flow/test_circuit.py::test_after_some_unanswered_questions_the_next_fails_at_once_and_says_since_when",
        "adapters/kubernetes/test_silent_server.py::test_reads_of_a_silent_server_fail_at_once_and_say_since_when",
        "adapters/test_http_client.py::test_readings_and_silences_say_who_does_not_answer",
    ),
    "With several clusters, an incident reads and changes only the cluster that its alert names": (
        "end_to_end/test_two_clusters.py::test_a_change_is_made_in_the_cluster_of_its_alert_while_the_other_is_silent",
        "flow/test_route_alerts.py::test_one_workload_name_in_two_clusters_has_an_incident_in_each",
        "flow/test_route_alerts.py::test_an_alert_about_no_known_cluster_is_kept_with_what_to_do",
        "flow/test_route_alerts.py::test_a_cluster_that_does_not_answer_delays_no_alert_of_another",
        "flow/test_clusters.py::test_nothing_is_sent_to_it_and_nothing_is_claimed_of_it",
        "adapters/redis/test_moments.py::test_each_cluster_has_its_own_node_breaker",
        "test_several_clusters.py::test_one_prometheus_for_two_clusters_needs_labels_that_distinguish_them",
    ),
    "A run keeps the playbook": (
        "flow/test_advance_run.py::test_a_run_keeps_the_playbook_that_it_started_with_whatever_the_files_say_now",
        "flow/test_live_playbooks.py::test_a_broken_edit_leaves_the_last_good_version_in_force_and_is_announced_once",
    ),
    "Replicas share the work, and may be upgraded one by one": (
        "flow/test_two_bots.py::test_two_bots_do_each_call_and_each_message_once",
        "flow/test_two_bots.py::test_when_one_of_two_bots_dies_the_other_goes_on",
        "flow/test_frozen.py::test_a_bot_that_goes_on_after_its_leases_lapsed_changes_nothing_that_lasts",
        "flow/test_two_versions.py::test_an_incident_ends_as_usual_when_either_replica_is_upgraded_at_any_step",
        "flow/test_two_versions.py::test_the_older_version_leaves_an_incident_of_the_newer_one_untouched",
        "end_to_end/test_replicas.py::test_a_storm_is_shown_whole_whatever_happens_to_replicas",
        "end_to_end/test_replicas.py::test_a_rolling_upgrade_changes_nothing_about_an_open_incident",
    ),
    "A failover of Redis (Sentinel or Cluster) needs no restart": (
        "adapters/redis/test_primary.py::test_after_sentinel_has_promoted_the_replica_its_data_is_used",
        "adapters/redis/test_primary.py::test_a_claim_waits_for_the_replica_and_fails_without_it",
        "adapters/redis/test_primary.py::test_a_cluster_promotes_a_replica_and_the_bot_follows",
        "adapters/redis/test_primary.py::test_a_slot_that_moves_to_another_node_is_followed_by_open_connections",
    ),
    "If Redis loses its data": (
        "flow/test_keep_epoch.py::test_redis_emptied_under_a_running_bot_is_noticed_before_any_number_comes_twice",
        "flow/test_keep_epoch.py::test_a_second_loss_in_the_same_minute_numbers_above_the_first",
        "flow/test_keep_epoch.py::test_after_a_failover_lost_incidents_come_back_with_numbers_that_nobody_has_seen",
        "flow/test_keep_epoch.py::test_what_fires_is_reopened_though_slack_is_away_and_people_are_notified_later",
        "end_to_end/test_emptied_redis.py::test_an_emptied_redis_is_announced_and_what_fires_is_reopened_under_a_number_far_above",
    ),
}
"""A promise by its first words."""

pytestmark = pytest.mark.fast


def promises() -> list[str]:
    section = README.partition("## What it promises\n")[2].partition("\n## ")[0]
    return [" ".join(found.split()) for found in re.split(r"^- ", section, flags=re.MULTILINE)[1:]]


@cache
def _functions_of(path: str) -> frozenset[str]:
    tree = ast.parse((ROOT / "tests" / path).read_text())
    return frozenset(node.name for node in tree.body if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef))


def test_every_promise_of_the_readme_names_the_tests_that_keep_it() -> None:
    assert len(promises()) == len(KEPT_BY)
    for promise, begins in zip(promises(), KEPT_BY, strict=True):
        assert promise.startswith(begins)


@pytest.mark.parametrize("named", [name for names in KEPT_BY.values() for name in names])
def test_every_test_that_keeps_a_promise_exists(named: str) -> None:
    path, _, function = named.partition("::")
    assert function in _functions_of(path)


def test_the_numbers_that_the_readme_promises_are_those_of_the_code() -> None:
    breaker = Breaker()
    text = " ".join(README.split())
    assert (breaker.disruptive_changes, breaker.node_disruptions, breaker.per) == (3, 2, timedelta(hours=1))
    assert "three changes an hour that end or restart a workload's serving replicas" in text
    assert "two nodes an hour" in text
    assert OPENS_AFTER == 3
    assert "After three timeouts it is tried only once every few seconds" in text
    assert breaker.cordoned_share == 0.1
    assert "at most a tenth of the GPUs cordoned" in text
    assert f"TTFT p99 × {TTFT_FACTOR:g} or requests waiting × {WAITING_FACTOR:g} since the grant" in text
    assert REMEMBERED_SECONDS == 1800
    assert "a second time within half an hour only with a new reason" in text
