"""The Grafana dashboard, cluster → node → GPU → device.

``docs/dashboard.py`` builds it with Grafana's typed SDK; ``python -m docs.generate`` writes it to
``divvy.json``, so that nothing that is installed needs the SDK.
"""

from importlib.resources import files

FILE = "divvy.json"


def dashboard_json() -> str:
    """Return the dashboard as Grafana imports it."""
    return (files(__package__) / FILE).read_text()
