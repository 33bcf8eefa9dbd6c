"""Maximum lengths of a playbook's texts, so that people see all of them where they decide."""

LABEL = 75
"""Of a button; longer ones are cut when shown."""
CHOICES = 25
"""Buttons of one question: the capacity of one row of a message."""
TEXT = 2_000
"""A question, and the reason of a question or change."""
NOTE = 300
"""The meaning of a choice, in small print."""
EFFECT = 240
"""The effect and cost of an option of a recommendation."""
WHY_NOT = 200
"""Why an option is not possible."""
EXPECTED = 600
TITLE = 60
"""What a diagnosis is called: the title of a card, behind the name of its workload."""
SAY = 300
"""What users feel, or what the trouble is, in one or two sentences."""
