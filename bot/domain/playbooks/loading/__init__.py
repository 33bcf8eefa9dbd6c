"""From the text of a playbook to its checked model, or to mistakes with their positions."""
