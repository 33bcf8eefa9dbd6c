"""Reports: what happened in an incident, for people and for machines, from its timeline alone."""

from bot.domain.reports.facts import Report
from bot.domain.reports.markdown_page import markdown
from bot.domain.reports.page import as_json
from bot.domain.reports.reading import report_of
from bot.domain.reports.roles import Roles
from bot.domain.reports.web_page import html

__all__ = ["Report", "Roles", "as_json", "html", "markdown", "report_of"]
