"""Reports: what happened in an incident, for people and for machines, from its timeline alone."""

from bot.domain.report.facts import Report
from bot.domain.report.page import as_json, markdown
from bot.domain.report.web_page import html

__all__ = ["Report", "as_json", "html", "markdown"]
