"""What every other layer may use: errors, targets, alerts, the timeline, texts without secrets."""
