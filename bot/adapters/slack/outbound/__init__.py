"""What goes to Slack: cards, threads, files, channels and Homes."""
