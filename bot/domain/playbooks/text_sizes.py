"""How long the texts of a playbook may be, so that people see all of them where they decide."""

LABEL = 75
"""Of a button; a longer one is cut when it is shown."""
CHOICES = 25
"""Buttons of one question: what one row of a message holds."""
TEXT = 2_000
"""A question, and the reason of a question or change."""
NOTE = 300
"""What a choice means, in small print."""
EXPECTED = 600
