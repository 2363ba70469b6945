"""The Grafana dashboard, cluster → node → GPU → device.

``panels`` builds it with Grafana's typed SDK; ``python -m docs.generate`` writes what it builds to
``divvy.json`` beside it, so that neither the program nor the chart needs the SDK.
"""

from importlib.resources import files

FILE = "divvy.json"


def dashboard_json() -> str:
    """Return the dashboard as Grafana imports it."""
    return (files(__package__) / FILE).read_text()
