"""Input from Slack: commands, buttons, forms, reactions and shortcuts."""
